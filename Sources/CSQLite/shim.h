#ifndef HOLDFAST_CSQLITE_H
#define HOLDFAST_CSQLITE_H

#include <sqlite3.h>

#endif
