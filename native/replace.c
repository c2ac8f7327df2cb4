#include "replace.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h> /* renameat */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

/* linux/fs.h, which comes with kernel headers that musl-dev has not: share the old file's blocks. */
#define CLONE_FILE _IOW(0x94, 9, int)

enum { CHUNK = 1 << 17 };

/* What a signal handler needs to remove the temporary file; `signal_folder` is set last and cleared first. */
static volatile sig_atomic_t signal_folder = -1;
static char signal_name[64];

static void remove_and_die(int number)
{
    if (signal_folder >= 0)
        unlinkat(signal_folder, signal_name, 0);
    /* The handler was reset when it was entered: now the signal ends the program. */
    raise(number);
}

void replace_handle_signals(void)
{
    static const int SIGNALS[] = { SIGINT, SIGTERM, SIGHUP };
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        struct sigaction action = { .sa_handler = remove_and_die, .sa_flags = (int)SA_RESETHAND };
        struct sigaction old;
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGNALS[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(SIGNALS[i], &action, NULL);
    }
}

bool replace_fail(struct replacement *replacement, const char *what)
{
    int error = errno;
    text_cut(&replacement->reason, 0);
    text_add_strings(&replacement->reason, what, ": ", strerror(error), NULL);
    return false;
}

int open_folder_of(int root, const char *path, const char **name)
{
    int folder = fcntl(root, F_DUPFD_CLOEXEC, 0);
    const char *slash;
    while (folder >= 0 && (slash = strchr(path, '/')) != NULL) {
        char *part = must_duplicate(path, (size_t)(slash - path));
        int next = openat(folder, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        close(folder);
        free(part);
        errno = error;
        folder = next;
        path = slash + 1;
    }
    *name = path;
    return folder;
}

static bool is_same_file(const struct stat *left, const struct stat *right)
{
    return left->st_dev == right->st_dev && left->st_ino == right->st_ino && left->st_size == right->st_size &&
           left->st_mtim.tv_sec == right->st_mtim.tv_sec && left->st_mtim.tv_nsec == right->st_mtim.tv_nsec;
}

static bool changed(struct replacement *replacement)
{
    text_cut(&replacement->reason, 0);
    text_add_string(&replacement->reason, "it was changed while it was being sealed");
    return false;
}

/* A name that nobody else uses: the process and a counter; what is there already is never opened. */
static bool make_temporary(struct replacement *replacement)
{
    static unsigned counter;
    for (int tries = 0; tries < 1000; tries++) {
        struct text name = { 0 };
        text_add_string(&name, TEMPORARY_PREFIX);
        text_add_number(&name, (uint64_t)getpid());
        text_add_char(&name, '.');
        text_add_number(&name, counter++);
        memcpy(replacement->temporary, name.bytes, name.length + 1);
        text_free(&name);
        memcpy(signal_name, replacement->temporary, sizeof signal_name);
        signal_folder = replacement->folder;
        replacement->target = openat(replacement->folder, replacement->temporary,
                                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (replacement->target >= 0) {
            replacement->exists = true;
            return true;
        }
        signal_folder = -1;
        if (errno != EEXIST)
            break;
    }
    return replace_fail(replacement, "no file can be made beside it");
}

bool replace_begin(struct replacement *replacement, int root, const char *path, const struct stat *expected)
{
    *replacement = (struct replacement){ .source = -1, .target = -1 };
    replacement->folder = open_folder_of(root, path, &replacement->name);
    if (replacement->folder < 0)
        return replace_fail(replacement, "its folder can't be opened");
    replacement->source = openat(replacement->folder, replacement->name,
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (replacement->source < 0)
        return errno == ELOOP ? changed(replacement) : replace_fail(replacement, "it can't be read");
    if (fstat(replacement->source, &replacement->before) != 0)
        return replace_fail(replacement, "it can't be read");
    if (!is_same_file(&replacement->before, expected))
        return changed(replacement);
    return make_temporary(replacement);
}

/* Copies inside the kernel, and moves `offset` and `length` on; false where the rest must be copied by hand. */
static bool copy_in_kernel(struct replacement *replacement, uint64_t *offset, uint64_t *length, bool *failed)
{
    off_t from = (off_t)*offset;
    while (*length > 0) {
        size_t part = *length < ((uint64_t)1 << 30) ? (size_t)*length : (size_t)1 << 30;
        ssize_t done = copy_file_range(replacement->source, &from, replacement->target, NULL, part, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            *failed = errno == ENOSPC || errno == EDQUOT || errno == EIO;
            return false;
        }
        if (done == 0)
            return false;
        *offset += (uint64_t)done;
        *length -= (uint64_t)done;
    }
    return true;
}

static bool copy_by_hand(struct replacement *replacement, uint64_t offset, uint64_t length)
{
    char *buffer = must_allocate(CHUNK);
    bool good = true;
    while (good && length > 0) {
        size_t part = length < CHUNK ? (size_t)length : CHUNK;
        ssize_t got = pread(replacement->source, buffer, part, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            good = got < 0 ? replace_fail(replacement, "it can't be read") : changed(replacement);
        } else {
            good = replace_write(replacement, buffer, (size_t)got);
            offset += (uint64_t)got;
            length -= (uint64_t)got;
        }
    }
    free(buffer);
    return good;
}

bool replace_copy(struct replacement *replacement, uint64_t offset, uint64_t length)
{
    uint64_t size = (uint64_t)replacement->before.st_size;
    if (length == TO_THE_END)
        length = offset < size ? size - offset : 0;
    bool whole = offset == 0 && length == size && size > 0;
    if (whole && ioctl(replacement->target, CLONE_FILE, replacement->source) == 0)
        return lseek(replacement->target, 0, SEEK_END) >= 0 || replace_fail(replacement, "it can't be copied");
    bool failed = false;
    /* For less than a buffer full reading and writing is as quick, and works everywhere. */
    if (length > CHUNK && copy_in_kernel(replacement, &offset, &length, &failed))
        return true;
    if (failed)
        return replace_fail(replacement, "its new content can't be written");
    return copy_by_hand(replacement, offset, length);
}

bool replace_write(struct replacement *replacement, const void *bytes, size_t length)
{
    return write_all(replacement->target, bytes, length) ||
           replace_fail(replacement, "its new content can't be written");
}

static bool copy_attribute(struct replacement *replacement, const char *name)
{
    char *value = NULL;
    ssize_t size = fgetxattr(replacement->source, name, NULL, 0);
    if (size >= 0) {
        value = must_allocate((size_t)size + 1);
        size = fgetxattr(replacement->source, name, value, (size_t)size);
    }
    bool good = size >= 0 && fsetxattr(replacement->target, name, value, (size_t)size, 0) == 0;
    int error = errno;
    free(value);
    errno = error;
    /* A security label is set by the system's own rules when a file is made; capabilities are the file's own. */
    if (good || (starts_with(name, "security.") && strcmp(name, "security.capability") != 0) ||
        starts_with(name, "trusted."))
        return true;
    char *what = join("its attribute ", name, " can't be kept", NULL);
    replace_fail(replacement, what);
    free(what);
    return false;
}

static bool copy_attributes(struct replacement *replacement)
{
    ssize_t size = flistxattr(replacement->source, NULL, 0);
    if (size <= 0)
        return size == 0 || errno == ENOTSUP || errno == ENOSYS || replace_fail(replacement, "its attributes can't be read");
    char *names = must_allocate((size_t)size + 1);
    size = flistxattr(replacement->source, names, (size_t)size);
    bool good = size >= 0 || replace_fail(replacement, "its attributes can't be read");
    for (ssize_t i = 0; good && i < size; i += (ssize_t)strlen(names + i) + 1)
        good = copy_attribute(replacement, names + i);
    free(names);
    return good;
}

static bool keep_attributes(struct replacement *replacement)
{
    const struct stat *before = &replacement->before;
    struct stat now;
    if (fstat(replacement->target, &now) != 0)
        return replace_fail(replacement, "its new content can't be read");
    if ((now.st_uid != before->st_uid || now.st_gid != before->st_gid) &&
        fchown(replacement->target, before->st_uid, before->st_gid) != 0)
        return replace_fail(replacement, "its owner can't be kept");
    /* In this order: a change of owner takes setuid bits and capabilities away. */
    if (fchmod(replacement->target, before->st_mode & 07777) != 0)
        return replace_fail(replacement, "its mode can't be kept");
    if (!copy_attributes(replacement))
        return false;
    struct timespec times[] = { before->st_atim, before->st_mtim };
    return futimens(replacement->target, times) == 0 || replace_fail(replacement, "its times can't be kept");
}

/* Lets another path of the old file become a link to the new one. */
static bool link_again(struct replacement *replacement, int root, const char *path)
{
    const char *name;
    struct stat now;
    int folder = open_folder_of(root, path, &name);
    if (folder < 0)
        return replace_fail(replacement, "the folder of a hard link can't be opened");
    bool good = fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && is_same_file(&now, &replacement->before);
    if (!good) {
        changed(replacement);
    } else if (linkat(replacement->folder, replacement->name, folder, replacement->temporary, 0) != 0) {
        good = replace_fail(replacement, "a hard link can't be made");
    } else if (renameat(folder, replacement->temporary, folder, name) != 0) {
        good = replace_fail(replacement, "a hard link can't be renamed");
        unlinkat(folder, replacement->temporary, 0);
    }
    close(folder);
    return good;
}

bool replace_commit(struct replacement *replacement, int root, char *const *links)
{
    struct stat now;
    if (!keep_attributes(replacement))
        return false;
    /* A close that fails may say that the disk is full, on a network file system. */
    int target = replacement->target;
    replacement->target = -1;
    if (close(target) != 0)
        return replace_fail(replacement, "its new content can't be written");
    if (fstatat(replacement->folder, replacement->name, &now, AT_SYMLINK_NOFOLLOW) != 0 ||
        !is_same_file(&now, &replacement->before))
        return changed(replacement);
    if (renameat(replacement->folder, replacement->temporary, replacement->folder, replacement->name) != 0)
        return replace_fail(replacement, "its new content can't take its name");
    signal_folder = -1;
    replacement->exists = false;
    for (size_t i = 0; links != NULL && links[i] != NULL; i++)
        if (!link_again(replacement, root, links[i]))
            return false;
    return true;
}

void replace_end(struct replacement *replacement)
{
    if (replacement->exists)
        unlinkat(replacement->folder, replacement->temporary, 0);
    signal_folder = -1;
    if (replacement->target >= 0)
        close(replacement->target);
    if (replacement->source >= 0)
        close(replacement->source);
    if (replacement->folder >= 0)
        close(replacement->folder);
    text_free(&replacement->reason);
}
