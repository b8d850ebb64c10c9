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
