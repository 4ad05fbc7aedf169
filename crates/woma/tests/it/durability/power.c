/* What a disk would still have after loss of power, for one process: contents of files that were synced,
 * names in folders that were synced. A file is known by its inode and its time of birth. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_watched(int fd, char *path) {
    const char *root = getenv("WOMA_TEST_POWER_ROOT");
    char link[64];
    if (root == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length <= 0) return 0;
    path[length] = 0;
    size_t size = strlen(root);
    return strncmp(path, root, size) == 0 && (path[size] == 0 || path[size] == '/');
}

static void name_of(const struct statx *at, char kind, char *name) {
    sprintf(name, "%c%llu-%lld-%u", kind, (unsigned long long)at->stx_ino,
            (long long)at->stx_btime.tv_sec, at->stx_btime.tv_nsec);
}

static void give_up(const char *what) {
    fprintf(stderr, "power.c: %s: %s\n", what, strerror(errno));
    abort();
}

/* A new file in the folder of what is kept; its final name comes when it is complete. */
static int begin(char *aside) {
    static _Atomic unsigned number;
    snprintf(aside, 4096, "%s/new-%d-%u", getenv("WOMA_TEST_POWER_KEPT"), getpid(), number++);
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) give_up(aside);
    return fd;
}

static void end(int fd, const char *aside, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("WOMA_TEST_POWER_KEPT"), name);
    if (close(fd) != 0 || rename(aside, path) != 0) give_up(path);
}

static void keep_content(const char *path, int fd) {
    char aside[4096], name[80], piece[1 << 16];
    struct statx at;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &at) != 0) give_up(path);
    char own[64];
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    int from = open(own, O_RDONLY | O_CLOEXEC), to = begin(aside);
    if (from < 0) give_up(path);
    ssize_t length;
    while ((length = read(from, piece, sizeof piece)) > 0)
        if (write(to, piece, length) != length) give_up(aside);
    if (length < 0) give_up(path);
    close(from);
    name_of(&at, 'f', name);
    end(to, aside, name);
}

static void keep_names(const char *path, int fd) {
    char aside[4096], name[80], line[512];
    struct statx at;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &at) != 0) give_up(path);
    int to = begin(aside);
    DIR *folder = opendir(path);
    if (folder == NULL) give_up(path);
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        struct statx one;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        /* One that is gone by now was not synced as such. */
        if (statx(fd, entry->d_name, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_INO | STATX_BTIME, &one) != 0) continue;
        char of[80];
        if (!S_ISDIR(one.stx_mode) && !S_ISREG(one.stx_mode)) continue;
        name_of(&one, S_ISDIR(one.stx_mode) ? 'd' : 'f', of);
        int length = snprintf(line, sizeof line, "%s %s\n", of, entry->d_name);
        if (write(to, line, length) != length) give_up(aside);
    }
    closedir(folder);
    name_of(&at, 'd', name);
    end(to, aside, name);
}

static int synced(int fd, const char *call) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    int failed = next(fd);
    int saved = errno;
    char path[4096];
    struct stat about;
    if (failed == 0 && is_watched(fd, path) && fstat(fd, &about) == 0) {
        if (S_ISDIR(about.st_mode)) keep_names(path, fd);
        if (S_ISREG(about.st_mode)) keep_content(path, fd);
    }
    errno = saved;
    return failed;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
