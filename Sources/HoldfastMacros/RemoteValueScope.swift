import SwiftSyntax
import SwiftSyntaxMacros

/// The type in which a remote value stands.
struct RemoteValueScope {
    /// What all keys of the type begin with, before a dot; empty for none.
    let prefix: String

    /// - Throws: `DiagnosticsError` unless it is a namespace's body or an extension of `RemoteValues`.
    init(of attribute: AttributeSyntax, kind: RemoteValueKind, in context: some MacroExpansionContext) throws {
        let enclosing = context.lexicalContext.first
        if let type = enclosing?.as(ExtensionDeclSyntax.self)?.extendedType.trimmedDescription,
            type == "RemoteValues" || type.hasSuffix(".RemoteValues")
        {
            prefix = ""
        } else if let namespace = enclosing?.asProtocol((any DeclGroupSyntax).self)?.remoteValuesNamespaceAttribute {
            prefix = try namespace.literal(labelled: nil, kind: kind) ?? ""
        } else {
            throw Misuse.outsideOfNamespace(kind).at(attribute)
        }
    }
}

extension DeclGroupSyntax {
    fileprivate var remoteValuesNamespaceAttribute: AttributeSyntax? {
        attributes.lazy.compactMap { $0.as(AttributeSyntax.self) }
            .first { $0.attributeName.trimmedDescription == RemoteValuesNamespaceMacro.attributeName }
    }
}
