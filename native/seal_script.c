#include "sealer.h"

#include <stdlib.h>
#include <string.h>

/* Whether a script's interpreter is the capsule's: an earlier run sealed it. */
static bool names_capsule(const struct input *input, const char *root)
{
    char start[512];
    size_t length = input->held < sizeof start - 1 ? input->held : sizeof start - 1;
    memcpy(start, input->bytes, length);
    start[length] = '\0';
    return starts_with(start, "#!") && is_below(start + 2, root);
}

static bool rewrite(struct sealer *sealer, const struct candidate *candidate, const struct script_result *result,
                    char **links)
{
    struct replacement replacement;
    bool good = replace_begin(&replacement, sealer->tree.root, candidate->path, &candidate->info) &&
                replace_write(&replacement, result->head.bytes, result->head.length) &&
                replace_copy(&replacement, result->replaced, TO_THE_END) &&
                replace_commit(&replacement, sealer->tree.root, links);
    if (!good)
        report_add(&sealer->report, REPORT_FAILURES, candidate->path, replacement.reason.bytes);
    replace_end(&replacement);
    return good;
}

void seal_script(struct sealer *sealer, const struct candidate *candidate, char **links)
{
    /* What can't be started needs no interpreter: modules and templates often begin with #!. */
    if ((candidate->info.st_mode & 0111) == 0)
        return;
    struct interpreters interpreters = sealer->interpreters;
    if (candidate->python != NULL)
        interpreters.python = candidate->python;
    char *path = absolute_path(sealer, candidate->path);
    *strrchr(path, '/') = '\0';
    struct script_result result = { 0 };
    const struct input *input = candidate->input;
    switch (script_examine((const char *)input->bytes, input->held, input->held == input->size, path,
                           &interpreters, &result)) {
    case SCRIPT_NOT:
        break;
    case SCRIPT_GOOD:
        sealer->report.sealed += names_capsule(input, interpreters.root);
        break;
    case SCRIPT_LEFT:
        report_add(&sealer->report, REPORT_SKIPPED, candidate->path, result.reason.bytes);
        break;
    case SCRIPT_REFUSED:
        report_add(&sealer->report, REPORT_FAILURES, candidate->path, result.reason.bytes);
        break;
    case SCRIPT_SEALED:
        if (sealer->tree.dry_run || rewrite(sealer, candidate, &result, links))
            report_add(&sealer->report, REPORT_SCRIPTS, candidate->path, NULL);
        break;
    }
    script_free(&result);
    free(path);
}
