// The part of libpq's binary interface that is used, pipelines included (PostgreSQL 14). Its headers are not needed to build
// the server, which loads the library at the first use. A test compares this with the headers.
#ifndef HOLDFAST_CPOSTGRESQL_H
#define HOLDFAST_CPOSTGRESQL_H

#include <stddef.h>

#ifndef HOLDFAST_REAL_TYPES
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
typedef unsigned Oid;

typedef enum { CONNECTION_OK = 0, CONNECTION_BAD = 1 } ConnStatusType;

typedef enum {
    PGRES_COMMAND_OK = 1,
    PGRES_TUPLES_OK = 2,
    PGRES_COPY_IN = 4,
    PGRES_PIPELINE_SYNC = 10,
    PGRES_PIPELINE_ABORTED = 11,
} ExecStatusType;

typedef enum { PQTRANS_INTRANS = 2, PQTRANS_INERROR = 3 } PGTransactionStatusType;

typedef struct pgNotify {
    char *relname;
    int be_pid;
    char *extra;
    struct pgNotify *next;
} PGnotify;

typedef struct {
    char *keyword;
    char *envvar;
    char *compiled;
    char *val;
    char *label;
    char *dispchar;
    int dispsize;
} PQconninfoOption;

typedef void (*PQnoticeReceiver)(void *context, const PGresult *notice);
typedef void (*PQnoticeProcessor)(void *context, const char *message);

enum {
    PG_DIAG_SEVERITY_NONLOCALIZED = 'V',
    PG_DIAG_SQLSTATE = 'C',
    PG_DIAG_MESSAGE_PRIMARY = 'M',
};
#endif

// The return type, name, parameters and arguments of each function.
#define HOLDFAST_FUNCTIONS(F)                                                                                          \
    F(PQconninfoOption *, PQconninfoParse, (const char *text, char **error), (text, error))                            \
    F(void, PQconninfoFree, (PQconninfoOption * options), (options))                                                   \
    F(PGconn *, PQconnectdb, (const char *text), (text))                                                               \
    F(PGconn *, PQconnectdbParams, (const char *const *names, const char *const *values, int expands),                 \
      (names, values, expands))                                                                                        \
    F(void, PQfinish, (PGconn * connection), (connection))                                                             \
    F(ConnStatusType, PQstatus, (const PGconn *connection), (connection))                                              \
    F(PGTransactionStatusType, PQtransactionStatus, (const PGconn *connection), (connection))                          \
    F(char *, PQerrorMessage, (const PGconn *connection), (connection))                                                \
    F(int, PQsocket, (const PGconn *connection), (connection))                                                         \
    F(int, PQbackendPID, (const PGconn *connection), (connection))                                                     \
    F(int, PQsetnonblocking, (PGconn * connection, int isNonblocking), (connection, isNonblocking))                    \
    F(int, PQenterPipelineMode, (PGconn * connection), (connection))                                                   \
    F(int, PQpipelineSync, (PGconn * connection), (connection))                                                        \
    F(int, PQflush, (PGconn * connection), (connection))                                                               \
    F(int, PQconsumeInput, (PGconn * connection), (connection))                                                        \
    F(int, PQisBusy, (PGconn * connection), (connection))                                                              \
    F(int, PQsendQuery, (PGconn * connection, const char *sql), (connection, sql))                                     \
    F(int, PQsendPrepare,                                                                                              \
      (PGconn * connection, const char *name, const char *sql, int count, const Oid *types),                           \
      (connection, name, sql, count, types))                                                                           \
    F(int, PQsendQueryParams,                                                                                          \
      (PGconn * connection, const char *sql, int count, const Oid *types, const char *const *values,                   \
       const int *lengths, const int *formats, int resultFormat),                                                      \
      (connection, sql, count, types, values, lengths, formats, resultFormat))                                         \
    F(int, PQsendQueryPrepared,                                                                                        \
      (PGconn * connection, const char *name, int count, const char *const *values, const int *lengths,                \
       const int *formats, int resultFormat),                                                                          \
      (connection, name, count, values, lengths, formats, resultFormat))                                               \
    F(PGresult *, PQexec, (PGconn * connection, const char *sql), (connection, sql))                                   \
    F(PGresult *, PQexecParams,                                                                                        \
      (PGconn * connection, const char *sql, int count, const Oid *types, const char *const *values,                   \
       const int *lengths, const int *formats, int resultFormat),                                                      \
      (connection, sql, count, types, values, lengths, formats, resultFormat))                                         \
    F(PGresult *, PQgetResult, (PGconn * connection), (connection))                                                    \
    F(int, PQputCopyData, (PGconn * connection, const char *bytes, int length), (connection, bytes, length))           \
    F(int, PQputCopyEnd, (PGconn * connection, const char *error), (connection, error))                                \
    F(PGnotify *, PQnotifies, (PGconn * connection), (connection))                                                     \
    F(void, PQfreemem, (void *memory), (memory))                                                                       \
    F(ExecStatusType, PQresultStatus, (const PGresult *result), (result))                                              \
    F(char *, PQresultErrorMessage, (const PGresult *result), (result))                                                \
    F(char *, PQresultErrorField, (const PGresult *result, int code), (result, code))                                  \
    F(int, PQntuples, (const PGresult *result), (result))                                                              \
    F(int, PQnfields, (const PGresult *result), (result))                                                              \
    F(char *, PQgetvalue, (const PGresult *result, int row, int column), (result, row, column))                        \
    F(int, PQgetlength, (const PGresult *result, int row, int column), (result, row, column))                          \
    F(int, PQgetisnull, (const PGresult *result, int row, int column), (result, row, column))                          \
    F(void, PQclear, (PGresult * result), (result))                                                                    \
    F(PQnoticeReceiver, PQsetNoticeReceiver, (PGconn * connection, PQnoticeReceiver receiver, void *context),          \
      (connection, receiver, context))

/// Whether libpq is installed; without it, no other function may be called.
int cpostgresql_is_available(void);

#ifndef HOLDFAST_REAL_TYPES
// Hidden: what libpq calls of its own must not be found here.
#define HOLDFAST_DECLARE(result, name, parameters, arguments)                                                          \
    __attribute__((visibility("hidden"))) result name parameters;
HOLDFAST_FUNCTIONS(HOLDFAST_DECLARE)
#endif

// The fields of an error.
char *cpostgresql_sqlstate(const PGresult *result);
char *cpostgresql_message(const PGresult *result);

/// The last warning of a server; empty if there was none.
typedef struct {
    char message[256];
} cpostgresql_warning;

/// What becomes of warnings, which libpq would write to standard error: nothing, or the last one is kept in a place that must
/// live as long as the connection.
void cpostgresql_ignore_notices(PGconn *connection);
void cpostgresql_keep_warnings(PGconn *connection, cpostgresql_warning *warning);
const char *cpostgresql_text(const cpostgresql_warning *warning);
void cpostgresql_clear(cpostgresql_warning *warning);

#endif
