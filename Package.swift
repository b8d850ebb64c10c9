// swift-tools-version: 6.1
import CompilerPluginSupport
import PackageDescription

let strict: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// The server's. Debug builds, which all tests use, check at each access that nothing else has hold of the same
/// property; a release build does not spend a tenth of its own instructions on that.
///
/// Asynchronous functions run where their caller does, that is on its event loop.
let server =
    strict + [
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        .unsafeFlags(["-enforce-exclusivity=unchecked"], .when(configuration: .release)),
    ]

/// Of what also runs on devices, and in packages that depend on this one, which may have no unsafe flags.
let portable = strict + [.enableUpcomingFeature("NonisolatedNonsendingByDefault")]

/// With `HOLDFAST_FUZZING` set the fuzz targets are a program for libFuzzer (`Tests/Fuzz/run`), else a test.
let fuzz: Target =
    Context.environment["HOLDFAST_FUZZING"] == nil
    ? .testTarget(
        name: "FuzzTests",
        dependencies: [
            "Bucketing", "Chronology", "Definitions", "JSON", "HTTPServer", "Storage", "HoldfastCore", "HoldfastAPI",
            "TestSupport",
        ],
        path: "Tests/Fuzz", exclude: ["Dictionaries", "Driver", "run"], sources: ["Suite", "Targets"],
        resources: [.copy("Corpus")], swiftSettings: strict)
    : .executableTarget(
        name: "holdfast-fuzz",
        dependencies: [
            "Bucketing", "Chronology", "Definitions", "JSON", "HTTPServer", "Storage", "HoldfastCore", "HoldfastAPI",
            "TestSupport",
        ],
        path: "Tests/Fuzz", exclude: ["Corpus", "Dictionaries", "Suite", "run"], sources: ["Driver", "Targets"],
        swiftSettings: strict)

/// Libraries that are loaded when they are first needed: a build needs no headers of theirs.
let loading = LinkerSetting.linkedLibrary("dl", .when(platforms: [.linux]))

let package = Package(
    name: "holdfast",
    // The client library's; the server is for Linux.
    platforms: [.macOS(.v13), .iOS(.v16), .tvOS(.v16), .watchOS(.v9), .visionOS(.v1)],
    products: [
        .executable(name: "holdfast", targets: ["holdfast"]),
        .library(name: "HoldfastClient", targets: ["HoldfastClient"]),
        // A product of its own: only who uses it builds swift-syntax.
        .library(name: "HoldfastMacros", targets: ["HoldfastMacros"]),
        .library(name: "HoldfastOptimizely", targets: ["HoldfastOptimizely"]),
        .library(name: "HoldfastObjectiveC", targets: ["HoldfastObjectiveC"]),
        .library(name: "HoldfastOnDevice", targets: ["HoldfastOnDevice"]),
        // Only for tests, which load them into the server.
        .library(name: "FaultyDisk", type: .dynamic, targets: ["FaultyDisk"]),
        .library(name: "SetClock", type: .dynamic, targets: ["SetClock"]),
    ],
    // SwiftPM fetches no package of which all uses have a condition on a trait that is turned off: none for the client.
    traits: [
        .trait(name: "Macros", description: "What the product HoldfastMacros needs: swift-syntax."),
        .trait(name: "PostgreSQL", description: "The store in a PostgreSQL database; it needs libpq."),
        .trait(name: "Server", description: "What the server needs: swift-log and swift-argument-parser."),
        .default(enabledTraits: ["Macros", "PostgreSQL", "Server"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
        .package(url: "https://github.com/swiftlang/swift-syntax", "600.0.0"..<"604.0.0"),
    ],
    targets: [
        // C
        .target(name: "CSystem"),
        .target(name: "CEmbedded"),
        .target(name: "CGzip", dependencies: ["CSystem"], linkerSettings: [loading]),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .target(name: "CSQLiteSupport", dependencies: ["CSQLite"]),
        .target(name: "CCrypto", dependencies: ["CSystem"], linkerSettings: [loading]),
        .target(name: "CYAML", dependencies: ["CSystem"], linkerSettings: [loading]),
        .target(name: "CHTTPClient", linkerSettings: [loading]),
        .target(name: "CPostgreSQL", dependencies: ["CSystem"], linkerSettings: [loading]),

        // The server, from what depends on nothing to what depends on all.
        .target(name: "Chronology", swiftSettings: portable),
        .target(name: "JSON", dependencies: ["Chronology"], swiftSettings: portable),
        .target(name: "Bucketing", dependencies: ["Chronology", "JSON"], swiftSettings: portable),
        .target(name: "Definitions", dependencies: ["Bucketing", "Chronology", "JSON"], swiftSettings: server),
        .target(name: "Tracing", dependencies: ["JSON"], swiftSettings: server),
        .target(name: "HTTPServer", dependencies: ["CSystem", "CGzip", "Tracing"], swiftSettings: server),
        .target(name: "Statistics", swiftSettings: server),
        .target(name: "Storage", dependencies: ["Bucketing", "Chronology", "JSON"], swiftSettings: server),
        .target(
            name: "Migrations",
            path: "migrations",
            resources: [
                .embedInCode("sqlite/0001_profiles.sql"), .embedInCode("sqlite/0002_projects.sql"),
                .embedInCode("sqlite/0003_exposures_and_goals.sql"), .embedInCode("sqlite/0004_audit.sql"),
                .embedInCode("sqlite/0005_attributes.sql"), .embedInCode("sqlite/0006_erasures_and_history.sql"),
                .embedInCode("sqlite/0007_periods_and_days.sql"), .embedInCode("sqlite/0008_sticky_documents.sql"),
                .embedInCode("sqlite/0009_override_layers.sql"), .embedInCode("sqlite/0010_project_names.sql"),
                .embedInCode("sqlite/0011_allocation_history.sql"),
                .embedInCode("sqlite/0012_latest_time.sql"),
                .embedInCode("sqlite/0013_frozen_results.sql"),
                .embedInCode("sqlite/0014_metric_series.sql"),
                .embedInCode("sqlite/0015_feed.sql"),
                .embedInCode("sqlite/0016_last_uses.sql"),
                .embedInCode("sqlite/0017_proposals.sql"),
                .embedInCode("sqlite/0018_bandit_looks.sql"),
                .embedInCode("sqlite/0019_store_generation.sql"),
                .embedInCode("sqlite/0020_status_history.sql"),
                .embedInCode("sqlite/0021_removed_users.sql"),
                .embedInCode("sqlite/0022_valued_events.sql"),
                .embedInCode("sqlite/0023_webhooks.sql"), .embedInCode("sqlite/0024_definitions.sql"),
                .embedInCode("sqlite/0025_definition_indexes.sql"),
                .embedInCode("postgresql/0001_holdfast.sql"),
                .embedInCode("postgresql/0002_override_layers.sql"),
                .embedInCode("postgresql/0003_project_names.sql"),
                .embedInCode("postgresql/0004_allocation_history.sql"),
                .embedInCode("postgresql/0005_tally_totals.sql"),
                .embedInCode("postgresql/0006_latest_time.sql"),
                .embedInCode("postgresql/0007_frozen_results.sql"),
                .embedInCode("postgresql/0008_metric_series.sql"),
                .embedInCode("postgresql/0009_feed.sql"),
                .embedInCode("postgresql/0010_last_uses.sql"),
                .embedInCode("postgresql/0011_proposals.sql"),
                .embedInCode("postgresql/0012_bandit_looks.sql"),
                .embedInCode("postgresql/0013_store_generation.sql"),
                .embedInCode("postgresql/0014_status_history.sql"),
                .embedInCode("postgresql/0015_removed_users.sql"),
                .embedInCode("postgresql/0016_valued_events.sql"),
                .embedInCode("postgresql/0017_webhooks.sql"), .embedInCode("postgresql/0018_definitions.sql"),
                .embedInCode("postgresql/0019_definition_indexes.sql"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "StorageSQLite",
            dependencies: [
                "Storage", "Bucketing", "Chronology", "JSON", "CSQLite", "CSQLiteSupport", "CSystem", "Migrations",
            ],
            swiftSettings: server),
        .target(
            name: "StorageEdge",
            dependencies: ["Storage", "StorageSQLite", "Bucketing", "Chronology", "JSON", "CHTTPClient", "Tracing"],
            swiftSettings: server),
        .target(
            name: "StoragePostgreSQL",
            dependencies: ["Storage", "Bucketing", "Chronology", "JSON", "CPostgreSQL", "Migrations"],
            swiftSettings: server),
        .target(
            name: "HoldfastCore",
            dependencies: [
                "Bucketing", "Chronology", "Definitions", "JSON", "Statistics", "Storage",
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Server"])),
            ],
            swiftSettings: server
        ),
        .target(
            name: "HoldfastAPI",
            dependencies: [
                "HTTPServer", "HoldfastCore", "Bucketing", "Chronology", "Definitions", "JSON", "Statistics", "Storage",
                "Tracing",
                "CCrypto", "CEmbedded",
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Server"])),
            ],
            // CEmbedded carries them, and the manual.
            exclude: ["Console/Page", "Manual/style.css", "openapi.json"],
            swiftSettings: server
        ),
        .executableTarget(
            name: "holdfast",
            dependencies: [
                "CSystem", "HTTPServer", "Bucketing", "Chronology", "Definitions", "JSON", "Storage", "StorageSQLite",
                "StorageEdge",
                "HoldfastCore",
                "HoldfastAPI", "CEmbedded", "CHTTPClient", "CYAML", "Tracing",
                .target(name: "StoragePostgreSQL", condition: .when(traits: ["PostgreSQL"])),
                .product(
                    name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["Server"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Server"])),
            ],
            swiftSettings: server
        ),

        // The client library, which needs nothing of the server.
        .target(
            name: "HoldfastClient", resources: [.copy("PrivacyInfo.xcprivacy")], swiftSettings: strict),
        // The client library as a service for another SDK.
        .target(name: "HoldfastOptimizely", dependencies: ["HoldfastClient"], swiftSettings: strict),
        // The client library with decisions on the device, by the server's own code.
        .target(
            name: "HoldfastOnDevice", dependencies: ["HoldfastClient", "Bucketing", "Chronology", "JSON"],
            swiftSettings: portable),
        // The client library for Objective-C.
        .target(name: "HoldfastObjectiveC", dependencies: ["HoldfastClient"], swiftSettings: strict),
        // Macros for the client's remote values.
        .target(
            name: "HoldfastMacros", dependencies: ["HoldfastClient", "HoldfastMacrosPlugin"], swiftSettings: strict),
        .macro(
            name: "HoldfastMacrosPlugin",
            dependencies: [
                .product(name: "SwiftCompilerPlugin", package: "swift-syntax", condition: .when(traits: ["Macros"])),
                .product(name: "SwiftSyntaxMacros", package: "swift-syntax", condition: .when(traits: ["Macros"])),
            ],
            swiftSettings: strict
        ),

        // Tests
        .executableTarget(
            name: "holdfast-parts",
            dependencies: [
                "Bucketing", "Chronology", "JSON", "HTTPServer", "Storage", "StorageSQLite", "HoldfastCore",
                "HoldfastAPI",
            ],
            path: "Tests/Benchmarks/Parts",
            swiftSettings: strict
        ),
        .target(name: "ProcessTestSupport", path: "Tests/ProcessTestSupport", swiftSettings: strict),
        .target(
            name: "TestSupport", dependencies: ["Bucketing", "Chronology", "HTTPServer", "JSON", "Storage"],
            path: "Tests/TestSupport",
            swiftSettings: strict),
        .target(
            name: "APITestSupport",
            dependencies: [
                "Chronology", "HoldfastAPI", "HoldfastCore", "HTTPServer", "JSON", "Storage", "StorageSQLite",
                "CSQLite",
                "ProcessTestSupport", "TestSupport",
                .target(name: "StoragePostgreSQL", condition: .when(traits: ["PostgreSQL"])),
                .target(name: "PostgreSQLTestSupport", condition: .when(traits: ["PostgreSQL"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Server"])),
            ],
            path: "Tests/APITestSupport", swiftSettings: strict),
        .testTarget(
            name: "ChronologyTests", dependencies: ["Chronology", "TestSupport"], swiftSettings: strict),
        .testTarget(name: "JSONTests", dependencies: ["JSON", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "BucketingTests", dependencies: ["Bucketing", "Chronology", "JSON", "TestSupport"],
            resources: [.copy("Vectors")],
            swiftSettings: strict),
        .target(
            name: "DefinitionsTestSupport",
            dependencies: ["Definitions", "Bucketing", "Chronology", "JSON", "TestSupport"],
            path: "Tests/DefinitionsTestSupport", swiftSettings: strict),
        .testTarget(
            name: "DefinitionsTests",
            dependencies: ["Definitions", "Bucketing", "Chronology", "JSON", "DefinitionsTestSupport", "TestSupport"],
            swiftSettings: strict),
        fuzz,
        .testTarget(
            name: "HTTPServerTests", dependencies: ["HTTPServer", "CSystem", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "HoldfastCoreTests",
            dependencies: [
                "HoldfastCore", "Bucketing", "Chronology", "Definitions", "JSON", "Storage", "DefinitionsTestSupport",
                "TestSupport",
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Server"])),
            ],
            exclude: ["Golden/definitions.txt", "plan_vectors.py"], resources: [.copy("plan-vectors.jsonl")],
            swiftSettings: strict),
        .testTarget(
            name: "HoldfastAPITests",
            dependencies: [
                "HoldfastAPI", "HoldfastCore", "HTTPServer", "Bucketing", "Chronology", "Definitions", "JSON",
                "Storage",
                "APITestSupport",
                "TestSupport",
            ],
            exclude: ["Golden"],
            swiftSettings: strict
        ),
        .executableTarget(
            name: "holdfast-client-parts", dependencies: ["HoldfastClient"], path: "Tests/Benchmarks/Client",
            swiftSettings: strict),
        .executableTarget(
            name: "client-process", dependencies: ["HoldfastClient"], path: "Tests/ClientProcess", swiftSettings: strict
        ),
        .testTarget(
            name: "HoldfastClientTests",
            dependencies: [
                "HoldfastClient", "HoldfastMacros", "HoldfastOnDevice", "holdfast", "client-process",
                "ProcessTestSupport",
            ],
            exclude: ["Generated/definitions.yaml", "StandIns"], swiftSettings: strict),
        .testTarget(
            name: "HoldfastOptimizelyTests", dependencies: ["HoldfastOptimizely", "HoldfastClient"],
            swiftSettings: strict),
        .testTarget(
            name: "HoldfastObjectiveCTests", dependencies: ["HoldfastObjectiveC", "HoldfastClient"],
            swiftSettings: strict),
        // Declares what the example uses of Firebase.
        .target(
            name: "FirebaseRemoteConfig", path: "Tests/StandIns/FirebaseRemoteConfig", swiftSettings: strict),
        .testTarget(
            name: "FirebaseExampleTests", dependencies: ["HoldfastClient", "FirebaseRemoteConfig"],
            path: "Tests/Examples/FirebaseRemoteConfig", swiftSettings: strict),
        .testTarget(
            name: "HoldfastMacrosTests", dependencies: ["HoldfastClient", "HoldfastMacros", "ProcessTestSupport"],
            swiftSettings: strict),
        .target(name: "FaultyDisk", path: "Tests/FaultyDisk"),
        .target(name: "SetClock", path: "Tests/SetClock"),
        .testTarget(
            name: "ServerTests",
            dependencies: ["holdfast", "JSON", "Migrations", "APITestSupport", "ProcessTestSupport", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "IntegrationTests",
            dependencies: [
                "holdfast", "Bucketing", "Chronology", "JSON", "CSQLite", "Migrations", "Storage", "StorageSQLite",
                "APITestSupport",
                "ProcessTestSupport", "TestSupport",
                .target(name: "StoragePostgreSQL", condition: .when(traits: ["PostgreSQL"])),
                .target(name: "PostgreSQLTestSupport", condition: .when(traits: ["PostgreSQL"])),
            ],
            exclude: ["Python", "Year/verdict.py"],
            swiftSettings: strict
        ),
        .testTarget(name: "TracingTests", dependencies: ["Tracing", "JSON"], swiftSettings: strict),
        .testTarget(
            name: "StatisticsTests", dependencies: ["Statistics", "JSON"],
            exclude: ["contrast_vectors.py", "vectors.py"],
            resources: [.copy("contrast-vectors.jsonl"), .copy("vectors.jsonl")], swiftSettings: strict),
        .testTarget(
            name: "StorageSQLiteTests",
            dependencies: [
                "StorageSQLite", "Storage", "Bucketing", "Chronology", "JSON", "CSQLite", "Migrations", "TestSupport",
            ],
            swiftSettings: strict),
        .target(
            name: "PostgreSQLTestSupport", dependencies: ["CPostgreSQL", "ProcessTestSupport"],
            path: "Tests/PostgreSQLTestSupport",
            exclude: ["postgresql-server", "postgresql-hosts"],
            swiftSettings: strict),
        .testTarget(
            name: "StoragePostgreSQLTests",
            dependencies: [
                "StoragePostgreSQL", "Storage", "Bucketing", "Chronology", "JSON", "PostgreSQLTestSupport",
                "ProcessTestSupport",
                "TestSupport",
            ],
            swiftSettings: strict),
        .testTarget(
            name: "StorageTests", dependencies: ["Storage", "Bucketing", "Chronology", "JSON", "TestSupport"],
            swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)

/// With `HOLDFAST_CLIENT_ONLY` set the package is the client library with those of its tests that need no server, for
/// systems on which the server does not build, such as a simulator.
if Context.environment["HOLDFAST_CLIENT_ONLY"] != nil {
    let libraries = ["HoldfastClient", "HoldfastOptimizely", "HoldfastObjectiveC", "HoldfastOnDevice"]
    let tests = ["HoldfastOptimizelyTests", "HoldfastObjectiveCTests", "FirebaseRemoteConfig", "FirebaseExampleTests"]
    let names = Set(libraries + tests + ["Bucketing", "Chronology", "JSON"])
    package.targets.removeAll { !names.contains($0.name) }
    package.products.removeAll { !libraries.contains($0.name) }
    package.dependencies = []
    package.traits = []
}
