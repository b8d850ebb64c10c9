import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacros

/// `@RemoteValuesNamespace enum Values { … }`: adds to each nested type the macro that fits its shape.
enum RemoteValuesNamespaceMacro: MemberAttributeMacro {
    static func expansion(
        of node: AttributeSyntax, attachedTo declaration: some DeclGroupSyntax,
        providingAttributesFor member: some DeclSyntaxProtocol, in context: some MacroExpansionContext
    ) throws -> [AttributeSyntax] {
        let isFirst = declaration.memberBlock.members.first?.decl.trimmedDescription == member.trimmedDescription
        guard declaration.is(EnumDeclSyntax.self) else {
            // Called for each member; reported once.
            guard isFirst else { return [] }
            throw Misuse.namespaceIsNotAnEnum.at(node, FixIt.changing(declaration, to: .enum))
        }
        guard let type = member.asProtocol((any DeclGroupSyntax).self), !type.is(ExtensionDeclSyntax.self),
            !type.is(ProtocolDeclSyntax.self), RemoteValueKind(attributeOf: type) == nil
        else { return [] }
        guard let kind = RemoteValueKind(shapeOf: type) else {
            context.diagnose(Misuse.unknownShape.diagnostic(at: type.introducer))
            return []
        }
        return ["@\(raw: kind.attributeName)"]
    }
}
