/*
 * Replaces a file's content by a rename, so that at every moment the name has all of the old or all of the new
 * content. Owner, mode, times, extended attributes and hard links are kept.
 */
#ifndef CAPSULE_REPLACE_H
#define CAPSULE_REPLACE_H

#include <sys/stat.h>

#include "text.h"

/* What a temporary file's name begins with: a walk removes those that a killed run left. */
#define TEMPORARY_PREFIX ".seal-tree."

struct replacement {
    int folder;         /* of the file; opened without following a symlink */
    const char *name;   /* in that folder; part of the path that was given */
    int source;         /* the file as it is */
    struct stat before;
    int target;         /* the temporary file */
    char temporary[64];
    bool exists;        /* the temporary file is there */
    struct text reason; /* why the last step failed */
};

/*
 * Opens ROOT/path, which must still be the file `expected`, and an empty temporary file beside it. False: see
 * `reason`. replace_end must be called in either case; it removes a temporary file that was not committed.
 */
bool replace_begin(struct replacement *replacement, int root, const char *path, const struct stat *expected);

/* Appends bytes of the old file to the new one, up to its end where `length` says so. */
#define TO_THE_END UINT64_MAX
bool replace_copy(struct replacement *replacement, uint64_t offset, uint64_t length);
bool replace_write(struct replacement *replacement, const void *bytes, size_t length);

/*
 * Gives the new file the old one's attributes and name. `links` are the other paths below ROOT of the same file
 * (NULL at the end): they become links to the new one.
 */
bool replace_commit(struct replacement *replacement, int root, char *const *links);
void replace_end(struct replacement *replacement);

/* Sets `reason` to `what`: what errno says. Returns false. */
bool replace_fail(struct replacement *replacement, const char *what);

/* Opens the folder of a path below `root`, following no symlink; -1 with errno set. `*name` is the last part. */
int open_folder_of(int root, const char *path, const char **name);

/* Makes SIGINT, SIGTERM and SIGHUP remove the temporary file before they end the program. */
void replace_handle_signals(void);

#endif
