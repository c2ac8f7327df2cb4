/* Walks a tree once, following no symlink, and shows the files that may need sealing. */
#ifndef CAPSULE_TREE_H
#define CAPSULE_TREE_H

#include <sys/stat.h>

#include "input.h"
#include "report.h"

/* A regular file whose head looks like a script or an ELF file. */
struct candidate {
    const char *path;   /* below the root */
    const char *python; /* of the venv that the file lies in, an absolute path; NULL: in none */
    struct stat info;
    const struct input *input;
};

struct tree {
    int root;
    const char *root_path;
    bool dry_run;         /* temporary files of a killed run stay */
    struct stat capsule;  /* its own root is never entered */
    struct report *report;
    void (*visit)(void *context, const struct candidate *candidate);
    void *context;
};

void tree_walk(struct tree *tree);

/* Opens a file that a walk has shown, if it is still the same; -1 when it isn't. */
int tree_open(const struct tree *tree, const char *path, const struct stat *expected, struct input *input);

#endif
