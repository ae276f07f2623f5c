/*
 * The least that any process between a client and a broker can cost: a byte pipe on epoll.
 *
 * pipe LISTEN_PORT TARGET_PORT, both on loopback. What comes in goes out on the other side, one
 * wait, one read and one write each; it looks at nothing, and small writes are taken to fit. The
 * benches use it to tell what a proxy adds from what the kernel costs.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DESCRIPTORS = 4096, EVENTS = 64 };

static char buffer[262144];
static int other_end[DESCRIPTORS];

static struct sockaddr_in on_loopback(const char *port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)atoi(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void watch(int loop, int fd, int other)
{
    struct epoll_event event;
    int on = 1;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    other_end[fd] = other;
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event))
        exit(1);
}

static void relay(int fd)
{
    ssize_t size = recv(fd, buffer, sizeof buffer, 0);
    if (size > 0) {
        if (send(other_end[fd], buffer, (size_t)size, MSG_NOSIGNAL) != size)
            exit(1);
    } else if (other_end[fd]) {
        close(other_end[fd]);
        other_end[other_end[fd]] = 0;
        close(fd);
        other_end[fd] = 0;
    }
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    struct sockaddr_in here = on_loopback(words[1]), target = on_loopback(words[2]);
    int on = 1, loop = epoll_create1(0), listening = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (void *)&here, sizeof here) || listen(listening, EVENTS))
        return 1;
    watch(loop, listening, 0);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(loop, events, EVENTS, -1);
        for (int n = 0; n < ready; n++) {
            int fd = events[n].data.fd;
            if (fd != listening) {
                relay(fd);
                continue;
            }
            int client = accept(listening, NULL, NULL);
            int broker = socket(AF_INET, SOCK_STREAM, 0);
            if (client < 0 || broker >= DESCRIPTORS || client >= DESCRIPTORS)
                return 1;
            if (connect(broker, (void *)&target, sizeof target))
                return 1;
            watch(loop, client, broker);
            watch(loop, broker, client);
        }
    }
}
