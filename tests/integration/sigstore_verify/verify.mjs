// Verifies Sigstore bundles with sigstore's JavaScript client.
//
//   node verify.mjs < checks.json
//
// Each check names files: {bundle, artifact?, root, identity?, issuer?, key?}. `artifact` is what a bundle without a
// statement signs; `key` is a public key (PEM), for a bundle that names one by its hint. Prints a list of
// {ok, error, payload}: the statement's bytes in base64 where there is one.
import { readFileSync } from "node:fs";
import { createPublicKey } from "node:crypto";
import { bundleFromJSON } from "@sigstore/bundle";
import { TrustedRoot } from "@sigstore/protobuf-specs";
import { Verifier, toSignedEntity, toTrustMaterial } from "@sigstore/verify";

const json = (path) => JSON.parse(readFileSync(path, "utf-8"));
const literally = (text) => `^${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;

function verify({ bundle, artifact, root, identity, issuer, key }) {
  const parsed = bundleFromJSON(json(bundle));
  const hint = parsed.verificationMaterial.content.publicKey?.hint;
  const keys = key && {
    [hint]: { rawBytes: createPublicKey(readFileSync(key)).export({ type: "spki", format: "der" }) },
  };
  const material = toTrustMaterial(TrustedRoot.fromJSON(json(root)), keys);
  const thresholds = key ? { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 } : {};
  const policy = key ? undefined : { subjectAlternativeName: literally(identity), extensions: { issuer } };
  const entity = toSignedEntity(parsed, artifact && readFileSync(artifact));
  new Verifier(material, thresholds).verify(entity, policy);
  return parsed.content.dsseEnvelope?.payload.toString("base64") ?? null;
}

const results = json(0).map((check) => {
  try {
    return { ok: true, error: null, payload: verify(check) };
  } catch (error) {
    return { ok: false, error: `${error.code ?? error.name}: ${error.message}`, payload: null };
  }
});
console.log(JSON.stringify(results));
