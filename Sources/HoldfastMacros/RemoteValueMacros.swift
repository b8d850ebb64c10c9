import SwiftCompilerPlugin
import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacros

/// The expansion which the four macros for one remote value share: the property becomes a computed one, and beside it
/// stands `$name`, the description of the value. With a baseline there is also `nameBaseline`.
///
/// The compiler runs both roles for each property. Only the role of the peer reports misuse, so that it is told once.
protocol RemoteValueMacro: AccessorMacro, PeerMacro {
    static var kind: RemoteValueKind { get }
}

extension RemoteValueMacro {
    static func expansion(
        of node: AttributeSyntax,
        providingAccessorsOf declaration: some DeclSyntaxProtocol,
        in context: some MacroExpansionContext
    ) throws -> [AccessorDeclSyntax] {
        guard let property = try? RemoteValueProperty(declaration, attribute: node, kind: kind, in: context) else {
            // Misuse has stopped the build; any getter keeps the compiler from also reporting that there is none.
            return ["get { fatalError() }"]
        }
        return [
            """
            get {
                self[Self.$\(raw: property.name)]
            }
            """
        ]
    }

    static func expansion(
        of node: AttributeSyntax,
        providingPeersOf declaration: some DeclSyntaxProtocol,
        in context: some MacroExpansionContext
    ) throws -> [DeclSyntax] {
        let property = try RemoteValueProperty(declaration, attribute: node, kind: kind, in: context)
        let access = property.access.map { "\($0) " } ?? ""
        let baselineArgument = property.baselineKey.map { ", baselineKey: \(StringLiteralExprSyntax(content: $0))" } ?? ""
        let description: DeclSyntax = """
            \(raw: access)static var $\(raw: property.name): RemoteValue<\(property.type)> {
                RemoteValue(\(StringLiteralExprSyntax(content: property.key))\(raw: baselineArgument), default: \(property.defaultValue))
            }
            """
        guard kind.hasBaseline else { return [description] }
        return [
            description,
            """
            \(raw: access)var \(raw: property.name)Baseline: \(property.type) {
                self[Self.$\(raw: property.name).baseline]
            }
            """,
        ]
    }
}

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

/// What sets the macros for one remote value apart.
struct RemoteValueKind {
    /// The name of the attribute, without the `@`.
    let attributeName: String

    /// Whether the value is a `Bool`, whose default is an argument of the attribute. All others have an initial value.
    let isBool: Bool

    /// Whether a second key, with the suffix `_baseline`, holds the value of those outside the experiment.
    let hasBaseline: Bool

    static let string = RemoteValueKind(attributeName: "StringRemoteValue", isBool: false, hasBaseline: false)
    static let bool = RemoteValueKind(attributeName: "BoolRemoteValue", isBool: true, hasBaseline: false)
    static let baselineString = RemoteValueKind(attributeName: "BaselineStringRemoteValue", isBool: false, hasBaseline: true)
    static let baselineBool = RemoteValueKind(attributeName: "BaselineBoolRemoteValue", isBool: true, hasBaseline: true)

    static let all = [string, bool, baselineString, baselineBool]
}

@main
struct HoldfastMacrosPlugin: CompilerPlugin {
    let providingMacros: [any Macro.Type] = [
        StringRemoteValueMacro.self,
        BoolRemoteValueMacro.self,
        BaselineStringRemoteValueMacro.self,
        BaselineBoolRemoteValueMacro.self,
        RemoteValuesNamespaceMacro.self,
    ]
}
