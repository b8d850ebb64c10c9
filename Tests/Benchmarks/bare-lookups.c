// The least work that a server must do for lookups of profiles in PostgreSQL: the yardstick of `compare --only
// postgresql_cost`. It does what Holdfast does with sockets and with the database, and nothing else:
//
// - as many event loops, each with its own listening socket (SO_REUSEPORT), epoll and one connection to the database;
// - the lookups of a loop iteration become one execution of the same prepared statement in pipeline mode; those that arrive
//   before its result become the next one;
// - it gathers as Holdfast does: after it has answered, it sends the next query once an iteration brings no further request,
//   after four such iterations at the latest, and yields to the other threads on its core when it has answered.
//
// It finds a request's end and its user_id by searching for text, checks nothing, decodes no record, and sends each user
// who is found the same body, as long as that of a profile with three assignments.
//
//     cc -O2 -I "$(pg_config --includedir)" bare-lookups.c -lpq -lpthread -o bare-lookups
//     bare-lookups PORT CONNECTION-STRING LOOPS

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { most_clients = 4096, most_pauses = 4, input_size = 4096, user_size = 64 };

struct client {
    int socket;
    // Its lookup has no answer yet; it was closed meanwhile.
    int is_waiting, is_gone;
    int length;
    char input[input_size];
};

struct lookup {
    struct client *client;
    int length;
    char user[user_size];
};

struct loop {
    int epoll, listener;
    PGconn *database;
    // Waiting, and of the query that is under way.
    struct lookup waiting[most_clients], asked[most_clients];
    int waiting_count, asked_count;
    int has_answered, pauses, last_waiting;
};

static int port;
static const char *connection_string;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(struct loop *loop, int socket, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, socket, &event) < 0) fail("epoll_ctl");
}

static void close_client(struct client *client) {
    close(client->socket);
    client->is_gone = 1;
    if (!client->is_waiting) free(client);
}

static void answer(struct lookup *lookup, int is_found) {
    lookup->client->is_waiting = 0;
    if (lookup->client->is_gone) return free(lookup->client);
    static const char map[] =
        "{\"10001\":{\"variation_id\":\"20093\"},\"10002\":{\"variation_id\":\"30053\"},\"7001\":{\"variation_id\":\"70011\"}}";
    char body[512], output[1024];
    int length = is_found ? snprintf(body, sizeof body, "{\"user_id\":\"%.*s\",\"experiment_bucket_map\":%s}\n",
                                     lookup->length, lookup->user, map)
                          : 0;
    length = snprintf(output, sizeof output,
                      "HTTP/1.1 %s\r\nDate: Mon, 23 Nov 2026 18:14:40 GMT\r\nContent-Type: application/json\r\n"
                      "X-Request-Id: 7592d418-2\r\nContent-Length: %d\r\n\r\n%.*s",
                      is_found ? "200 OK" : "404 Not Found", length, length, body);
    // A client of a benchmark reads: there is room, unless it has closed the connection, which epoll tells.
    send(lookup->client->socket, output, (size_t)length, MSG_NOSIGNAL);
}

// Takes the requests that are complete. A client sends the next one when it has its response.
static void receive(struct loop *loop, struct client *client) {
    ssize_t count = recv(client->socket, client->input + client->length, (size_t)(input_size - 1 - client->length), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return close_client(client);
    client->length += (int)count;
    client->input[client->length] = 0;
    char *body = strstr(client->input, "\r\n\r\n");
    char *size = strstr(client->input, "Content-Length: ");
    if (!body || !size || client->length < body + 4 - client->input + atoi(size + 16)) return;
    char *user = strstr(body, "\"user_id\":\"");
    char *end = user ? strchr(user + 11, '"') : NULL;
    if (!end || end - user - 11 >= user_size || loop->waiting_count == most_clients) return close_client(client);
    struct lookup *lookup = &loop->waiting[loop->waiting_count++];
    client->is_waiting = 1;
    lookup->client = client;
    lookup->length = (int)(end - user - 11);
    memcpy(lookup->user, user + 11, (size_t)lookup->length);
    client->length = 0;
}

static char *put(char *target, int number) {
    unsigned network = htonl((unsigned)number);
    memcpy(target, &network, 4);
    return target + 4;
}

// One query for all lookups that wait; its parameter is an array as array_recv reads it.
static void ask(struct loop *loop) {
    static __thread char parameter[20 + most_clients * (4 + user_size)];
    char *end = put(put(put(put(put(parameter, 1), 0), 25), loop->waiting_count), 1);
    for (int i = 0; i < loop->waiting_count; i++) {
        end = put(end, loop->waiting[i].length);
        end = mempcpy(end, loop->waiting[i].user, (size_t)loop->waiting[i].length);
    }
    const char *values[] = {parameter};
    int lengths[] = {(int)(end - parameter)}, formats[] = {1};
    if (!PQsendQueryPrepared(loop->database, "profiles", 1, values, lengths, formats, 1) ||
        !PQpipelineSync(loop->database) || PQflush(loop->database) != 0) {
        fprintf(stderr, "%s", PQerrorMessage(loop->database));
        exit(1);
    }
    memcpy(loop->asked, loop->waiting, sizeof(struct lookup) * (size_t)loop->waiting_count);
    loop->asked_count = loop->waiting_count;
    loop->waiting_count = 0;
}

static void answer_all(struct loop *loop, PGresult *rows) {
    char is_found[most_clients] = {0};
    for (int row = 0; row < PQntuples(rows); row++) {
        const char *user = PQgetvalue(rows, row, 0);
        int length = PQgetlength(rows, row, 0);
        for (int i = 0; i < loop->asked_count; i++) {
            if (loop->asked[i].length == length && memcmp(loop->asked[i].user, user, (size_t)length) == 0) is_found[i] = 1;
        }
    }
    for (int i = 0; i < loop->asked_count; i++) answer(&loop->asked[i], is_found[i]);
}

// Returns the number of lookups that were answered.
static int receive_rows(struct loop *loop) {
    int answered = 0;
    if (!PQconsumeInput(loop->database)) {
        fprintf(stderr, "%s", PQerrorMessage(loop->database));
        exit(1);
    }
    while (loop->asked_count > 0 && !PQisBusy(loop->database)) {
        PGresult *result = PQgetResult(loop->database);
        // NULL only ends the results of the statement.
        if (!result) continue;
        switch (PQresultStatus(result)) {
        case PGRES_TUPLES_OK:
            answer_all(loop, result);
            break;
        case PGRES_PIPELINE_SYNC:
            answered += loop->asked_count;
            loop->asked_count = 0;
            break;
        default:
            fprintf(stderr, "%s", PQresultErrorMessage(result));
            exit(1);
        }
        PQclear(result);
    }
    return answered;
}

// As BatchCoalescer of the module StoragePostgreSQL.
static int should_wait(struct loop *loop) {
    int is_more = loop->waiting_count > loop->last_waiting;
    loop->last_waiting = loop->waiting_count;
    if (!loop->has_answered || loop->pauses == most_pauses || (loop->pauses > 0 && !is_more)) {
        loop->has_answered = loop->pauses = 0;
        return 0;
    }
    loop->pauses++;
    return 1;
}

static void *run(void *unused) {
    (void)unused;
    struct loop *loop = calloc(1, sizeof *loop);
    loop->epoll = epoll_create1(0);
    loop->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int yes = 1;
    setsockopt(loop->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(loop->listener, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(loop->listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(loop->listener, 1024) < 0) {
        fail("listen");
    }
    loop->database = PQconnectdb(connection_string);
    PQclear(PQexec(loop->database, "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"));
    PGresult *prepared = PQprepare(
        loop->database, "profiles", "SELECT user_id, profile FROM users WHERE user_id = ANY($1)", 0, NULL);
    if (PQresultStatus(prepared) != PGRES_COMMAND_OK || PQsetnonblocking(loop->database, 1) != 0 ||
        !PQenterPipelineMode(loop->database)) {
        fprintf(stderr, "%s", PQerrorMessage(loop->database));
        exit(1);
    }
    PQclear(prepared);
    watch(loop, loop->listener, &loop->listener);
    watch(loop, PQsocket(loop->database), &loop->database);
    struct epoll_event events[256];
    int waits = 1;
    while (1) {
        int count = epoll_wait(loop->epoll, events, 256, waits ? -1 : 0), answered = 0;
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &loop->listener) {
                int socket = accept4(loop->listener, NULL, NULL, SOCK_NONBLOCK);
                if (socket < 0) continue;
                setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                struct client *client = calloc(1, sizeof *client);
                client->socket = socket;
                watch(loop, socket, client);
            } else if (events[i].data.ptr == &loop->database) {
                answered += receive_rows(loop);
            } else {
                receive(loop, events[i].data.ptr);
            }
        }
        if (answered > 0) loop->has_answered = 1;
        waits = loop->asked_count > 0 || !should_wait(loop);
        if (waits && loop->asked_count == 0 && loop->waiting_count > 0) ask(loop);
        if (answered > 0) sched_yield();
    }
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "Usage: bare-lookups PORT CONNECTION-STRING LOOPS\n");
        return 64;
    }
    port = atoi(arguments[1]);
    connection_string = arguments[2];
    pthread_t thread;
    for (int loops = atoi(arguments[3]); loops > 1; loops--) pthread_create(&thread, NULL, run, NULL);
    run(NULL);
}
