// The files of the console. A new one needs a line here.

#include "CEmbedded.h"

#pragma clang diagnostic ignored "-Wc23-extensions"

static const struct embedded_file files[] = {
    {"index.html", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/index.html" suffix(, 0)
    }},
    {"style.css", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/style.css" suffix(, 0)
    }},
    {"icon.svg", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/icon.svg" suffix(, 0)
    }},
    {"app.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/app.js" suffix(, 0)
    }},
    {"api.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/api.js" suffix(, 0)
    }},
    {"dom.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/dom.js" suffix(, 0)
    }},
    {"format.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/format.js" suffix(, 0)
    }},
    {"parts.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/parts.js" suffix(, 0)
    }},
    {"charts.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/charts.js" suffix(, 0)
    }},
    {"palette.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/palette.js" suffix(, 0)
    }},
    {"users.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/users.js" suffix(, 0)
    }},
    {"experiments.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/experiments.js" suffix(, 0)
    }},
    {"experiment-form.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/experiment-form.js" suffix(, 0)
    }},
    {"conditions.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/conditions.js" suffix(, 0)
    }},
    {"history.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/history.js" suffix(, 0)
    }},
    {"sentences.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/sentences.js" suffix(, 0)
    }},
    {"today.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/today.js" suffix(, 0)
    }},
    {"plan.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/plan.js" suffix(, 0)
    }},
    {"plan-form.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/plan-form.js" suffix(, 0)
    }},
    {"results.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/results.js" suffix(, 0)
    }},
    {"flags.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/flags.js" suffix(, 0)
    }},
    {"live.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/live.js" suffix(, 0)
    }},
    {"proposals.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/proposals.js" suffix(, 0)
    }},
    {"audit.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/audit.js" suffix(, 0)
    }},
    {"attributes.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/attributes.js" suffix(, 0)
    }},
    {"catalog.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/catalog.js" suffix(, 0)
    }},
    {"environments.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/environments.js" suffix(, 0)
    }},
    {"webhooks.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/webhooks.js" suffix(, 0)
    }},
    {"sign-in.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/sign-in.js" suffix(, 0)
    }},
    {"datafiles.js", (const unsigned char[]){
#embed "../HoldfastAPI/Console/Page/datafiles.js" suffix(, 0)
    }},
    {0},
};

const struct embedded_file *embedded_console(void) {
    return files;
}
