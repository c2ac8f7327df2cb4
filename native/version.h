/* The native tools' own version: what `capsule-exec --version` and `seal-tree --version` print. */
#ifndef CAPSULE_VERSION_H
#define CAPSULE_VERSION_H

#define CAPSULE_NATIVE_VERSION "1.0.0"

/* Where the capsule is installed, fixed when it is built; the build names it with -D. */
#ifndef CAPSULE_ROOT
#error "CAPSULE_ROOT is not defined: compile with -DCAPSULE_ROOT='\"/tmp/agentcompass-capsules/...\"'"
#endif

#endif
