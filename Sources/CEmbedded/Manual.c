// The articles of the manual without its landing page, in the order of `holdfast manual`.

#include "CEmbedded.h"

#pragma clang diagnostic ignored "-Wc23-extensions"

static const struct embedded_file files[] = {
    {"Experiments", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Experiments.md" suffix(, 0)
    }},
    {"Flags", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Flags.md" suffix(, 0)
    }},
    {"Profiles", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Profiles.md" suffix(, 0)
    }},
    {"AttributesAndSegments", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/AttributesAndSegments.md" suffix(, 0)
    }},
    {"EventsAndResults", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/EventsAndResults.md" suffix(, 0)
    }},
    {"Console", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Console.md" suffix(, 0)
    }},
    {"SDKs", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/SDKs.md" suffix(, 0)
    }},
    {"OptimizelySDK", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/OptimizelySDK.md" suffix(, 0)
    }},
    {"OpenFeature", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/OpenFeature.md" suffix(, 0)
    }},
    {"ClientLibrary", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/ClientLibrary.md" suffix(, 0)
    }},
    {"API", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/API.md" suffix(, 0)
    }},
    {"Configuration", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Configuration.md" suffix(, 0)
    }},
    {"Access", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Access.md" suffix(, 0)
    }},
    {"Operations", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Operations.md" suffix(, 0)
    }},
    {"RunOnPostgreSQL", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/RunOnPostgreSQL.md" suffix(, 0)
    }},
    {"MoveFromSQLite", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MoveFromSQLite.md" suffix(, 0)
    }},
    {"Deployment", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Deployment.md" suffix(, 0)
    }},
    {"Kubernetes", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Kubernetes.md" suffix(, 0)
    }},
    {"Monitoring", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Monitoring.md" suffix(, 0)
    }},
    {"Backups", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Backups.md" suffix(, 0)
    }},
    {"MovingIn", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MovingIn.md" suffix(, 0)
    }},
    {"MovingFromRedis", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MovingFromRedis.md" suffix(, 0)
    }},
    {"MovingFromTables", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MovingFromTables.md" suffix(, 0)
    }},
    {"MovingFromGrowthBook", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MovingFromGrowthBook.md" suffix(, 0)
    }},
    {"Sizing", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Sizing.md" suffix(, 0)
    }},
    {"Performance", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Performance.md" suffix(, 0)
    }},
    {"Limits", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Limits.md" suffix(, 0)
    }},
    {"Threats", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Threats.md" suffix(, 0)
    }},
    {"Proof", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Proof.md" suffix(, 0)
    }},
    {"Architecture", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Architecture.md" suffix(, 0)
    }},
    {"Contributing", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Contributing.md" suffix(, 0)
    }},
    {"Changes", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Changes.md" suffix(, 0)
    }},
    {0, 0},
};

const struct embedded_file *embedded_manual(void) {
    return files;
}
