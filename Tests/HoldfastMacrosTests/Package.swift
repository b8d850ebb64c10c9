// swift-tools-version: 6.1
import PackageDescription

// A package of its own: a test that links a macro is built for the host, and with it every test of the package and all
// that these need, a second time.
let package = Package(
    name: "holdfast-macros-tests",
    platforms: [.macOS(.v15)],
    dependencies: [.package(url: "https://github.com/swiftlang/swift-syntax", "600.0.0"..<"604.0.0")],
    targets: [
        // A link to the folder of the macros, built as a program, because a test cannot link a plugin.
        .executableTarget(
            name: "HoldfastMacrosPlugin",
            dependencies: [
                .product(name: "SwiftCompilerPlugin", package: "swift-syntax"),
                .product(name: "SwiftSyntaxMacros", package: "swift-syntax"),
            ],
            path: "HoldfastMacrosPlugin"),
        .testTarget(
            name: "HoldfastMacrosTests",
            dependencies: [
                "HoldfastMacrosPlugin",
                .product(name: "SwiftSyntaxMacrosGenericTestSupport", package: "swift-syntax"),
            ],
            path: ".", exclude: ["HoldfastMacrosPlugin", "Package.swift"]),
    ],
    swiftLanguageModes: [.v6]
)
