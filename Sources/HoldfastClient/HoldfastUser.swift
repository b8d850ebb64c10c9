public import Foundation

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

    // Literals are attribute values.
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

    /// Such as `iPhone14,5` or `x86_64`.
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

/// The value of a user attribute. The server's schema defines the type of each attribute.
///
/// ```swift
/// let attributes: [String: UserAttributeValue] = ["country": "de", "age": 30, "is_member": true]
/// ```
public enum UserAttributeValue: Sendable {
    /// A string, country, date (`yyyy-mm-dd`), time (`HH:MM`), timestamp, or one option of a selection.
    case string(String)
    case integer(Int64)
    case number(Double)
    case bool(Bool)
    /// Several options of a selection.
    case list([String])

    /// Returns a timestamp in RFC 3339 format, UTC.
    public static func timestamp(_ date: Date) -> UserAttributeValue {
        .string(date.rfc3339)
    }
}

extension UserAttributeValue: Equatable {
    /// Strings are compared by their UTF-8 bytes, as the server compares them.
    public static func == (left: UserAttributeValue, right: UserAttributeValue) -> Bool {
        switch (left, right) {
        case (.string(let left), .string(let right)): left.hasSameBytes(as: right)
        case (.integer(let left), .integer(let right)): left == right
        case (.number(let left), .number(let right)): left == right
        case (.integer(let left), .number(let right)), (.number(let right), .integer(let left)):
            Double(left) == right
        case (.bool(let left), .bool(let right)): left == right
        case (.list(let left), .list(let right)):
            left.count == right.count && zip(left, right).allSatisfy { $0.hasSameBytes(as: $1) }
        default: false
        }
    }
}

extension UserAttributeValue: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else {
            self = .list(try container.decode([String].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .string(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .bool(let value): try container.encode(value)
        case .list(let value): try container.encode(value)
        }
    }
}

extension UserAttributeValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .number(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(arrayLiteral elements: String...) { self = .list(elements) }
}
