/* What a run did, left and failed at, and its two forms: lines for people, JSON for programs. */
#ifndef CAPSULE_REPORT_H
#define CAPSULE_REPORT_H

#include "text.h"

enum report_list { REPORT_SCRIPTS, REPORT_INTERPRETERS, REPORT_RPATHS, REPORT_SKIPPED, REPORT_FAILURES, REPORT_LISTS };

struct report_entry {
    char *path;   /* below the root */
    char *reason; /* NULL for what was sealed */
};

struct report {
    const char *root;
    bool dry_run;
    uint64_t scanned; /* regular files looked at */
    uint64_t sealed;  /* of these, sealed by an earlier run */
    struct {
        struct report_entry *items;
        size_t count;
        size_t room;
    } lists[REPORT_LISTS];
};

void report_add(struct report *report, enum report_list list, const char *path, const char *reason);

/* Writes the report to standard output; false, with errno set, when that is not possible. */
bool report_print(struct report *report, bool json);
void report_free(struct report *report);

#endif
