// The articles of the manual and of the client library; the landing page has the order of `holdfast manual`.

#include "CEmbedded.h"

#pragma clang diagnostic ignored "-Wc23-extensions"

static const struct embedded_file files[] = {
    {"Holdfast", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Holdfast.md" suffix(, 0)
    }},
    {"Concepts", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Concepts.md" suffix(, 0)
    }},
    {"FromPlanToWinner", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/FromPlanToWinner.md" suffix(, 0)
    }},
    {"Console", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Console.md" suffix(, 0)
    }},
    {"ChooseHowToConnect", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/ChooseHowToConnect.md" suffix(, 0)
    }},
    {"API", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/API.md" suffix(, 0)
    }},
    {"OptimizelySDK", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/OptimizelySDK.md" suffix(, 0)
    }},
    {"OptimizelyAgent", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/OptimizelyAgent.md" suffix(, 0)
    }},
    {"UserProfileService", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/UserProfileService.md" suffix(, 0)
    }},
    {"OpenFeature", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/OpenFeature.md" suffix(, 0)
    }},
    {"ClientLibrary", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/ClientLibrary.md" suffix(, 0)
    }},
    {"Bucketeer", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Bucketeer.md" suffix(, 0)
    }},
    {"GrowthBook", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/GrowthBook.md" suffix(, 0)
    }},
    {"Statsig", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Statsig.md" suffix(, 0)
    }},
    {"Datafiles", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Datafiles.md" suffix(, 0)
    }},
    {"Assistants", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Assistants.md" suffix(, 0)
    }},
    {"Experiments", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Experiments.md" suffix(, 0)
    }},
    {"Flags", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Flags.md" suffix(, 0)
    }},
    {"Ramps", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Ramps.md" suffix(, 0)
    }},
    {"Bandits", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Bandits.md" suffix(, 0)
    }},
    {"DefinitionsAsCode", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/DefinitionsAsCode.md" suffix(, 0)
    }},
    {"EventsAndResults", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/EventsAndResults.md" suffix(, 0)
    }},
    {"ResultsLookWrong", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/ResultsLookWrong.md" suffix(, 0)
    }},
    {"Metrics", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Metrics.md" suffix(, 0)
    }},
    {"HowHoldfastDecides", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/HowHoldfastDecides.md" suffix(, 0)
    }},
    {"Feed", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Feed.md" suffix(, 0)
    }},
    {"Export", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Export.md" suffix(, 0)
    }},
    {"Profiles", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Profiles.md" suffix(, 0)
    }},
    {"AttributesAndSegments", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/AttributesAndSegments.md" suffix(, 0)
    }},
    {"GoToProduction", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/GoToProduction.md" suffix(, 0)
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
    {"Deployment", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Deployment.md" suffix(, 0)
    }},
    {"Kubernetes", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Kubernetes.md" suffix(, 0)
    }},
    {"Monitoring", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Monitoring.md" suffix(, 0)
    }},
    {"Webhooks", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Webhooks.md" suffix(, 0)
    }},
    {"Backups", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Backups.md" suffix(, 0)
    }},
    {"Edge", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Edge.md" suffix(, 0)
    }},
    {"RunOnPostgreSQL", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/RunOnPostgreSQL.md" suffix(, 0)
    }},
    {"MoveFromSQLite", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MoveFromSQLite.md" suffix(, 0)
    }},
    {"MigrateToHoldfast", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MigrateToHoldfast.md" suffix(, 0)
    }},
    {"MigrateFromRedis", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MigrateFromRedis.md" suffix(, 0)
    }},
    {"MigrateFromTables", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MigrateFromTables.md" suffix(, 0)
    }},
    {"MigrateFromGrowthBook", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/MigrateFromGrowthBook.md" suffix(, 0)
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
    {"ThreatModel", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/ThreatModel.md" suffix(, 0)
    }},
    {"Changes", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Changes.md" suffix(, 0)
    }},
    {"Architecture", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Architecture.md" suffix(, 0)
    }},
    {"Testing", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Testing.md" suffix(, 0)
    }},
    {"Contributing", (const unsigned char[]){
#embed "../holdfast/holdfast.docc/Contributing.md" suffix(, 0)
    }},
    {"Client/HoldfastClient", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/HoldfastClient.md" suffix(, 0)
    }},
    {"Client/Flags", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/Flags.md" suffix(, 0)
    }},
    {"Client/SplitTests", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/SplitTests.md" suffix(, 0)
    }},
    {"Client/RemoteValues", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/RemoteValues.md" suffix(, 0)
    }},
    {"Client/UserProfiles", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/UserProfiles.md" suffix(, 0)
    }},
    {"Client/Attributes", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/Attributes.md" suffix(, 0)
    }},
    {"Client/Apps", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/Apps.md" suffix(, 0)
    }},
    {"Client/OpenFeature", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/OpenFeature.md" suffix(, 0)
    }},
    {"Client/Coverage", (const unsigned char[]){
#embed "../HoldfastClient/HoldfastClient.docc/Coverage.md" suffix(, 0)
    }},
    {0},
};

const struct embedded_file *embedded_manual(void) {
    return files;
}

static const unsigned char style[] = {
#embed "../HoldfastAPI/Manual/style.css"
};
static const unsigned char console_list[] = {
#embed "../holdfast/holdfast.docc/console-list.png"
};
static const unsigned char console_results[] = {
#embed "../holdfast/holdfast.docc/console-results.png"
};
static const unsigned char console_user[] = {
#embed "../holdfast/holdfast.docc/console-user.png"
};

static const struct embedded_file page_files[] = {
    {"style.css", style, sizeof style},
    {"console-list.png", console_list, sizeof console_list},
    {"console-results.png", console_results, sizeof console_results},
    {"console-user.png", console_user, sizeof console_user},
    {0},
};

const struct embedded_file *embedded_manual_files(void) {
    return page_files;
}
