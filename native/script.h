/*
 * The first line of a script: what it asks for, and what it becomes when it is sealed.
 *
 * Works on bytes alone; of the file system it only asks whether an interpreter is there.
 */
#ifndef CAPSULE_SCRIPT_H
#define CAPSULE_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

/* The private interpreters, as absolute paths; NULL: the capsule has none. */
struct interpreters {
    const char *root; /* what lies below it is the capsule's own */
    const char *node;
    const char *python;
    const char *python_name; /* with its minor version: "python3.12" */
    const char *bash;
    const char *splitter;  /* shebang-exec */
    size_t line_limit;     /* how many bytes of a first line the kernel reads, #! included */
};

enum script_verdict {
    SCRIPT_NOT,     /* no script */
    SCRIPT_GOOD,    /* a script that needs nothing */
    SCRIPT_LEFT,    /* a script that is left as it is, for `reason` */
    SCRIPT_SEALED,  /* `head` takes the place of the first `replaced` bytes */
    SCRIPT_REFUSED, /* it needs sealing, and `reason` says why that can't be done */
};

struct script_result {
    struct text head;
    size_t replaced;
    struct text reason;
};

/*
 * Decides about a file that begins with `bytes`.
 *
 * `whole` says that the file ends there. `folder` is the script's own folder, an absolute path.
 * `result` must be empty; script_free releases it.
 */
enum script_verdict script_examine(const char *bytes, size_t length, bool whole, const char *folder,
                                   const struct interpreters *interpreters, struct script_result *result);

void script_free(struct script_result *result);

/* How many bytes of a script's first line the running kernel reads. */
size_t script_line_limit(void);

#endif
