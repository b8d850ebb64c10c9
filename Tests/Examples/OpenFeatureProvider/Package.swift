// swift-tools-version: 6.1

import PackageDescription

// A package of its own, so that the library depends on no other. It builds on Apple's systems, whose Combine OpenFeature needs.
let package = Package(
    name: "HoldfastOpenFeature",
    platforms: [.macOS(.v13), .iOS(.v16), .tvOS(.v16), .watchOS(.v9)],
    products: [.library(name: "HoldfastOpenFeature", targets: ["HoldfastOpenFeature"])],
    dependencies: [
        .package(name: "holdfast", path: "../../..", traits: []),
        .package(url: "https://github.com/open-feature/swift-sdk", .upToNextMinor(from: "0.5.0")),
    ],
    targets: [
        .target(
            name: "HoldfastOpenFeature",
            dependencies: [
                .product(name: "HoldfastClient", package: "holdfast"),
                .product(name: "OpenFeature", package: "swift-sdk"),
            ], swiftSettings: [.swiftLanguageMode(.v5)])
    ]
)
