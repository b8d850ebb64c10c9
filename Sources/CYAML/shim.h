#ifndef HOLDFAST_CYAML_H
#define HOLDFAST_CYAML_H

#include <yaml.h>

#endif
