import SwiftSyntaxMacros

/// `@StringRemoteValue var title = "News"`
enum StringRemoteValueMacro: RemoteValueMacro {
    static let kind = RemoteValueKind.string
}

/// `@BoolRemoteValue(enabledByDefault: false) var showsStories: Bool`
enum BoolRemoteValueMacro: RemoteValueMacro {
    static let kind = RemoteValueKind.bool
}

/// `@BaselineStringRemoteValue var layout = "grid"`
enum BaselineStringRemoteValueMacro: RemoteValueMacro {
    static let kind = RemoteValueKind.baselineString
}

/// `@BaselineBoolRemoteValue(enabledByDefault: true) var playsSound: Bool`
enum BaselineBoolRemoteValueMacro: RemoteValueMacro {
    static let kind = RemoteValueKind.baselineBool
}
