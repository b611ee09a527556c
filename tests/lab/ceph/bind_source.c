// Copyright (c) 2026 The storage_ops.runbooks contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Preloaded into a client: its IPv4 connections come from LAB_ADDRESS, those of IPv6 from LAB_ADDRESS_6. Ceph's
// ms_bind_before_connect does that for daemons only.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *target, socklen_t length)
{
    int (*original)(int, const struct sockaddr *, socklen_t) = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    const char *address = getenv("LAB_ADDRESS"), *address_6 = getenv("LAB_ADDRESS_6");
    struct sockaddr_in source = {.sin_family = AF_INET};
    struct sockaddr_in6 source_6 = {.sin6_family = AF_INET6};

    // EINVAL: bound already; a socket that does not block is connected by two calls.
    if (address && target->sa_family == AF_INET && inet_pton(AF_INET, address, &source.sin_addr) == 1 &&
        bind(fd, (struct sockaddr *)&source, sizeof source) != 0 && errno != EINVAL)
        return -1;
    if (address_6 && target->sa_family == AF_INET6 && inet_pton(AF_INET6, address_6, &source_6.sin6_addr) == 1 &&
        bind(fd, (struct sockaddr *)&source_6, sizeof source_6) != 0 && errno != EINVAL)
        return -1;
    return original(fd, target, length);
}
