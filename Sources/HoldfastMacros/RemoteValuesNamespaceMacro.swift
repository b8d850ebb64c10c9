import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacros

/// `@RemoteValuesNamespace("feed") struct FeedValues { … }`: a struct whose stored properties are all remote values.
enum RemoteValuesNamespaceMacro: MemberMacro, ExtensionMacro {
    static let attributeName = "RemoteValuesNamespace"

    static func expansion(
        of node: AttributeSyntax,
        providingMembersOf declaration: some DeclGroupSyntax,
        conformingTo protocols: [TypeSyntax],
        in context: some MacroExpansionContext
    ) throws -> [DeclSyntax] {
        guard let type = declaration.as(StructDeclSyntax.self) else {
            throw DiagnosticsError(diagnostics: [Misuse.notAStruct.diagnostic(at: node, FixIt.makingStruct(of: declaration))])
        }
        let keys = try self.keys(of: type, prefix: node.literal(labelled: nil, kind: .string) ?? "", in: context)
        if keys.isEmpty { context.diagnose(Misuse.emptyNamespace.diagnostic(at: type.name)) }
        let access = type.modifiers.compactMap(\.memberAccess).first.map { "\($0) " } ?? ""
        let elements = keys.map { StringLiteralExprSyntax(content: $0).description }.joined(separator: ", ")
        return [
            "\(raw: access)let remoteValues: RemoteValues",
            """
            \(raw: access)init(_ remoteValues: RemoteValues) {
                self.remoteValues = remoteValues
            }
            """,
            """
            \(raw: access)static var remoteKeys: [RemoteKey] {
                [\(raw: elements)]
            }
            """,
        ]
    }

    static func expansion(
        of node: AttributeSyntax,
        attachedTo declaration: some DeclGroupSyntax,
        providingExtensionsOf type: some TypeSyntaxProtocol,
        conformingTo protocols: [TypeSyntax],
        in context: some MacroExpansionContext
    ) throws -> [ExtensionDeclSyntax] {
        guard declaration.is(StructDeclSyntax.self) else { return [] }
        return [try ExtensionDeclSyntax("extension \(type.trimmed): RemoteValuesNamespace {}")]
    }

    /// The keys of all values in the order in which they are written. A property that is wrong in itself is left to its
    /// own macro to report.
    private static func keys(
        of type: StructDeclSyntax, prefix: String, in context: some MacroExpansionContext
    ) throws -> [String] {
        var keys: [String] = []
        for variable in type.memberBlock.members.compactMap({ $0.decl.as(VariableDeclSyntax.self) }) {
            guard let (attribute, kind) = variable.remoteValueAttributes.first else {
                if variable.isStored { context.diagnose(Misuse.storedProperty.diagnostic(at: variable)) }
                continue
            }
            guard let property = try? RemoteValueProperty(variable, attribute: attribute, kind: kind, prefix: prefix) else { continue }
            for key in [property.key, property.baselineKey].compactMap(\.self) {
                if keys.contains(key) { context.diagnose(Misuse.repeatedKey(key).diagnostic(at: variable)) }
                keys.append(key)
            }
        }
        return keys
    }
}

extension VariableDeclSyntax {
    /// Whether an instance keeps it: it is neither static nor computed.
    fileprivate var isStored: Bool {
        let isOfType = modifiers.contains { ["static", "class"].contains($0.name.text) }
        return !isOfType && bindings.contains { $0.accessorBlock == nil }
    }
}

extension DeclModifierSyntax {
    /// The access level that members need to be used where their type is; nil for what is not an access level.
    fileprivate var memberAccess: String? {
        switch name.tokenKind {
        case .keyword(.public): "public"
        case .keyword(.package): "package"
        case .keyword(.private), .keyword(.fileprivate): "fileprivate"
        default: nil
        }
    }
}
