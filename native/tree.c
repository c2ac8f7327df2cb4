#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_file.h"
#include "replace.h"

static const char NEITHER[] = "it may be executed, but is neither an ELF file nor a script that begins with #!";

/* A folder's names, read before anything in it is changed; each is its type (d_type) and its name. */
struct names {
    struct text bytes;
    size_t *offsets;
    size_t count;
    size_t room;
};

/* Where the walk is. */
struct place {
    struct tree *tree;
    int folder;
    struct text path;   /* of the folder, with a slash at its end; empty for the root */
    const char *python;
    bool programs;      /* the folder is one for programs: bin, or npm's .bin */
};

static const char *name_at(const struct names *names, size_t index)
{
    return names->bytes.bytes + names->offsets[index] + 1;
}

static unsigned char type_at(const struct names *names, size_t index)
{
    return (unsigned char)names->bytes.bytes[names->offsets[index]];
}

static bool read_names(int folder, struct names *names)
{
    int fd = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (stream == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    const struct dirent *entry;
    errno = 0;
    while ((entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (names->count == names->room) {
            names->room = 2 * names->room + 32;
            names->offsets = must_grow(names->offsets, names->room * sizeof *names->offsets);
        }
        names->offsets[names->count++] = names->bytes.length;
        text_add_char(&names->bytes, (char)entry->d_type);
        text_add(&names->bytes, entry->d_name, strlen(entry->d_name) + 1);
    }
    int error = errno;
    closedir(stream);
    errno = error;
    return error == 0;
}

static void free_names(struct names *names)
{
    text_free(&names->bytes);
    free(names->offsets);
}

/* Notes that a path can't be looked at. What has vanished, or became a symlink, since it was listed needs nothing. */
static void fail(struct place *place, const char *path)
{
    if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)
        return;
    char *reason = join("it can't be read: ", strerror(errno), NULL);
    report_add(place->tree->report, REPORT_FAILURES, path, reason);
    free(reason);
}

static bool looks_like_script(const struct input *input)
{
    const uint8_t *bytes = input->bytes;
    size_t bom = input->held >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    return input->held >= bom + 2 && bytes[bom] == '#' && bytes[bom + 1] == '!';
}

static bool is_candidate(const struct input *input)
{
    return looks_like_script(input) || elf_has_magic(input->bytes, input->held);
}

/* What a program's folder holds must be something that the kernel can start. */
static void check_startable(struct place *place, const struct stat *info)
{
    if (S_ISREG(info->st_mode) && (info->st_mode & 0111) != 0 && info->st_size > 0)
        report_add(place->tree->report, REPORT_SKIPPED, place->path.bytes, NEITHER);
}

static void look_at_file(struct place *place, const char *name)
{
    struct tree *tree = place->tree;
    int fd = openat(place->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        fail(place, place->path.bytes);
        return;
    }
    tree->report->scanned++;
    struct input input;
    struct candidate candidate = { .path = place->path.bytes, .python = place->python, .input = &input };
    if (!input_from_file(&input, fd, UINT64_MAX)) {
        fail(place, place->path.bytes);
    } else if (is_candidate(&input) || place->programs) {
        if (fstat(fd, &candidate.info) != 0) {
            fail(place, place->path.bytes);
        } else if (!is_candidate(&input)) {
            check_startable(place, &candidate.info);
        } else if (S_ISREG(candidate.info.st_mode)) {
            input.size = (uint64_t)candidate.info.st_size;
            tree->visit(tree->context, &candidate);
        }
    }
    close(fd);
}

/* A link in a program's folder that leads to nothing, or to something that can't be started, is worth a line. */
static void look_at_link(struct place *place, const char *name)
{
    struct stat info;
    struct input input;
    if (fstatat(place->folder, name, &info, 0) != 0) {
        report_add(place->tree->report, REPORT_SKIPPED, place->path.bytes,
                   errno == ELOOP ? "it is a symlink that leads to itself" : "it is a symlink that leads to nothing");
        return;
    }
    if (!S_ISREG(info.st_mode))
        return;
    int fd = openat(place->folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (input_from_file(&input, fd, UINT64_MAX) && !is_candidate(&input))
        check_startable(place, &info);
    close(fd);
}

/* The interpreter of a venv whose top this folder is; NULL: it is none. */
static char *venv_python(const struct place *place)
{
    static const char PYTHON[] = "bin/python3";
    if (faccessat(place->folder, "pyvenv.cfg", F_OK, 0) != 0 || faccessat(place->folder, PYTHON, X_OK, 0) != 0)
        return NULL;
    return join(place->tree->root_path, "/", place->path.length > 0 ? place->path.bytes : "", PYTHON, NULL);
}

static void walk(struct place *place);

static void enter(struct place *place, const char *name)
{
    struct tree *tree = place->tree;
    struct stat info;
    int fd = openat(place->folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        fail(place, place->path.bytes);
        return;
    }
    if (fstat(fd, &info) == 0 && info.st_dev == tree->capsule.st_dev && info.st_ino == tree->capsule.st_ino) {
        report_add(tree->report, REPORT_SKIPPED, place->path.bytes, "it is the capsule itself");
    } else {
        struct place inside = {
            .tree = tree,
            .folder = fd,
            .path = place->path,
            .python = place->python,
            .programs = strcmp(name, "bin") == 0 || strcmp(name, ".bin") == 0,
        };
        text_add_char(&inside.path, '/');
        walk(&inside);
        place->path = inside.path;
    }
    close(fd);
}

static void look_at(struct place *place, const char *name, unsigned char type)
{
    if (type == DT_UNKNOWN) {
        struct stat info;
        if (fstatat(place->folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            fail(place, place->path.bytes);
            return;
        }
        type = (unsigned char)(S_ISDIR(info.st_mode) ? DT_DIR : S_ISREG(info.st_mode) ? DT_REG :
                               S_ISLNK(info.st_mode) ? DT_LNK : DT_UNKNOWN);
    }
    if (type == DT_REG && starts_with(name, TEMPORARY_PREFIX)) {
        if (!place->tree->dry_run)
            unlinkat(place->folder, name, 0);
    } else if (type == DT_REG) {
        look_at_file(place, name);
    } else if (type == DT_DIR) {
        enter(place, name);
    } else if (type == DT_LNK && place->programs) {
        look_at_link(place, name);
    }
}

static void walk(struct place *place)
{
    struct names names = { 0 };
    size_t length = place->path.length;
    char *python = venv_python(place);
    if (python != NULL)
        place->python = python;
    if (!read_names(place->folder, &names)) {
        text_cut(&place->path, length > 0 ? length - 1 : 0);
        fail(place, length > 0 ? place->path.bytes : "");
    }
    for (size_t i = 0; i < names.count; i++) {
        text_cut(&place->path, length);
        text_add_string(&place->path, name_at(&names, i));
        look_at(place, name_at(&names, i), type_at(&names, i));
    }
    free_names(&names);
    free(python);
}

void tree_walk(struct tree *tree)
{
    struct place top = { .tree = tree, .folder = tree->root };
    walk(&top);
    text_free(&top.path);
}

int tree_open(const struct tree *tree, const char *path, const struct stat *expected, struct input *input)
{
    const char *name;
    struct stat info;
    int folder = open_folder_of(tree->root, path, &name);
    int fd = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (folder >= 0)
        close(folder);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_dev == expected->st_dev && info.st_ino == expected->st_ino &&
        S_ISREG(info.st_mode) && input_from_file(input, fd, (uint64_t)info.st_size))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}
