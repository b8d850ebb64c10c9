import Foundation

/// The user for whom flags are evaluated.
public struct HoldfastUser: Sendable, Equatable, Codable {
    /// 1 to 1,024 bytes of UTF-8 without NUL.
    public let id: String
    /// Attributes for audience conditions.
    public var attributes: [String: UserAttributeValue]

    public init(id: String, attributes: [String: UserAttributeValue] = [:]) {
        self.id = id
        self.attributes = attributes
    }

    // Disfavored, so that a dictionary literal has values of type `UserAttributeValue`.
    @_disfavoredOverload
    public init(id: String, attributes: [String: String]) {
        self.init(id: id, attributes: attributes.mapValues { .string($0) })
    }

    /// Attributes of the app and the device: `app_version` if it is given, `os_name`, `os_version`, `device_model` and
    /// `language` (ISO 639).
    public static func standardAttributes(appVersion: String? = nil) -> [String: UserAttributeValue] {
        let version = ProcessInfo.processInfo.operatingSystemVersion
        var attributes: [String: UserAttributeValue] = [
            "os_name": .string(operatingSystem), "device_model": .string(deviceModel),
            "os_version": .string("\(version.majorVersion).\(version.minorVersion).\(version.patchVersion)"),
        ]
        attributes["app_version"] = appVersion.map { .string($0) }
        attributes["language"] = Locale.current.language.languageCode.map { .string($0.identifier) }
        return attributes
    }

    private static var operatingSystem: String {
        #if os(iOS)
            "ios"
        #elseif os(macOS)
            "macos"
        #elseif os(tvOS)
            "tvos"
        #elseif os(watchOS)
            "watchos"
        #elseif os(visionOS)
            "visionos"
        #else
            "linux"
        #endif
    }

    /// The model of the device, such as `iPhone14,5` or `x86_64`.
    private static var deviceModel: String {
        var system = utsname()
        guard uname(&system) == 0 else { return "unknown" }
        return withUnsafeBytes(of: &system.machine) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }

    public static func == (left: HoldfastUser, right: HoldfastUser) -> Bool {
        left.id.hasSameBytes(as: right.id) && left.attributes == right.attributes
    }

    /// - Throws: ``HoldfastError/invalidArgument(_:)`` for an invalid id.
    static func check(id: String) throws(HoldfastError) {
        guard (1...1_024).contains(id.utf8.count), !id.utf8.contains(0) else {
            throw .invalidArgument("user id must have 1 to 1024 bytes without NUL; got \(id.utf8.count) bytes")
        }
    }
}
