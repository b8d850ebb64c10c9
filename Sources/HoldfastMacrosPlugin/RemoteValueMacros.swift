import SwiftCompilerPlugin
import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacros

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

/// A macro that makes a type a remote value by adding conformances and, in most cases, members.
///
/// The compiler runs each role of a macro for a type. Only the extension role reports misuse, so that it is reported
/// once; the other roles then add nothing.
protocol RemoteValueMacro: ExtensionMacro {
    static var kind: RemoteValueKind { get }
    /// The protocols to which the macro makes a type conform, unless the type names them itself.
    static var conformances: [String] { get }

    /// - Throws: `DiagnosticsError` for a declaration that the macro does not fit.
    static func check(_ declaration: some DeclGroupSyntax, _ attribute: AttributeSyntax) throws
}

extension RemoteValueMacro {
    static func expansion(
        of node: AttributeSyntax, attachedTo declaration: some DeclGroupSyntax,
        providingExtensionsOf type: some TypeSyntaxProtocol, conformingTo protocols: [TypeSyntax],
        in context: some MacroExpansionContext
    ) throws -> [ExtensionDeclSyntax] {
        try check(declaration, node)
        let missing = conformances.filter { !declaration.inherits($0) }
        guard !missing.isEmpty else { return [] }
        return [try ExtensionDeclSyntax("extension \(type.trimmed): \(raw: missing.joined(separator: ", ")) {}")]
    }

    /// Whether the macro fits a declaration.
    static func fits(_ declaration: some DeclGroupSyntax, _ attribute: AttributeSyntax) -> Bool {
        (try? check(declaration, attribute)) != nil
    }
}

/// `@StringRemoteValue enum PaywallType: String { case a, b }`
enum StringRemoteValueMacro: RemoteValueMacro {
    static let kind = RemoteValueKind.string
    static let conformances = ["CaseIterable", "StringInitializableRemoteValue"]

    static func check(_ declaration: some DeclGroupSyntax, _ attribute: AttributeSyntax) throws {
        let type = try declaration.requireEnum(kind, attribute)
        guard type.hasStringRawValue else {
            throw Misuse.noStringRawValue(type.name.text).at(type.name, FixIt.addingStringRawValue(to: type))
        }
        guard type.hasCases else { throw Misuse.noCases(type.name.text).at(type.name) }
    }
}

/// `@BoolRemoteValue(enabledByDefault: true) enum StoriesEnabled { case enabled, disabled }`
///
/// The macro does not add the cases. Other files would take an enum that is written without cases for a type without
/// values, and their debug builds would crash.
enum BoolRemoteValueMacro: RemoteValueMacro, MemberMacro {
    static let kind = RemoteValueKind.bool
    static let conformances = ["CaseIterable", "BoolEnumRemoteValue"]

    static func check(_ declaration: some DeclGroupSyntax, _ attribute: AttributeSyntax) throws {
        let type = try declaration.requireEnum(kind, attribute)
        guard type.hasBoolCases else {
            throw Misuse.noBoolCases(type.name.text).at(type.name, FixIt.addingBoolCases(to: type))
        }
        try type.checkDefault(kind, attribute)
    }

    static func expansion(
        of node: AttributeSyntax, providingMembersOf declaration: some DeclGroupSyntax,
        conformingTo protocols: [TypeSyntax], in context: some MacroExpansionContext
    ) throws -> [DeclSyntax] {
        guard fits(declaration, node), let enabled = node.argument(labelled: "enabledByDefault") else { return [] }
        return [
            "\(raw: declaration.memberAccess)static var `default`: Self { \(enabled.trimmed) ? .enabled : .disabled }"
        ]
    }
}

/// `@BaselineStringRemoteValue struct PaywallTest { enum Variant: String { case a, b } }`
enum BaselineStringRemoteValueMacro: RemoteValueMacro, MemberMacro, MemberAttributeMacro {
    static let kind = RemoteValueKind.baselineString
    static let conformances = ["CaseIterable", "BaselineStringRemoteValue", "ExperimentalGroupTrackable"]

    static func check(_ declaration: some DeclGroupSyntax, _ attribute: AttributeSyntax) throws {
        let type = try declaration.requireStruct(kind, attribute)
        guard type.variant != nil else { throw Misuse.noVariant(type.name.text).at(type.name) }
        guard !type.hasStoredProperties else { throw Misuse.storedProperties(type.name.text).at(type.name) }
    }

    static func expansion(
        of node: AttributeSyntax, providingMembersOf declaration: some DeclGroupSyntax,
        conformingTo protocols: [TypeSyntax], in context: some MacroExpansionContext
    ) throws -> [DeclSyntax] {
        guard fits(declaration, node) else { return [] }
        return declaration.baselineMembers(name: "variant", type: "Variant")
    }

    /// Makes `Variant` a string value.
    static func expansion(
        of node: AttributeSyntax, attachedTo declaration: some DeclGroupSyntax,
        providingAttributesFor member: some DeclSyntaxProtocol, in context: some MacroExpansionContext
    ) throws -> [AttributeSyntax] {
        guard fits(declaration, node), let variant = member.as(EnumDeclSyntax.self), variant.name.text == "Variant",
            RemoteValueKind(attributeOf: variant) == nil, !variant.inherits("StringInitializableRemoteValue")
        else { return [] }
        return ["@StringRemoteValue"]
    }
}

/// `@BaselineBoolRemoteValue(enabledByDefault: true) struct SoundEnabled {}`
enum BaselineBoolRemoteValueMacro: RemoteValueMacro, MemberMacro {
    static let kind = RemoteValueKind.baselineBool
    static let conformances = ["CaseIterable", "BaselineBoolRemoteValue", "ExperimentalGroupTrackable"]

    static func check(_ declaration: some DeclGroupSyntax, _ attribute: AttributeSyntax) throws {
        let type = try declaration.requireStruct(kind, attribute)
        guard !type.hasStoredProperties else { throw Misuse.storedProperties(type.name.text).at(type.name) }
        try type.checkDefault(kind, attribute)
    }

    static func expansion(
        of node: AttributeSyntax, providingMembersOf declaration: some DeclGroupSyntax,
        conformingTo protocols: [TypeSyntax], in context: some MacroExpansionContext
    ) throws -> [DeclSyntax] {
        guard fits(declaration, node) else { return [] }
        var members = declaration.baselineMembers(name: "isEnabled", type: "Bool")
        if let enabled = node.argument(labelled: "enabledByDefault") {
            members.append(
                """
                \(raw: declaration.memberAccess)static var `default`: Self { Self(baseline: true, isEnabled: \(enabled.trimmed)) }
                """)
        }
        return members
    }
}

extension DeclGroupSyntax {
    /// Returns the declaration as an enum.
    ///
    /// - Throws: the diagnostic for another declaration.
    fileprivate func requireEnum(_ kind: RemoteValueKind, _ attribute: AttributeSyntax) throws -> EnumDeclSyntax {
        guard let type = self.as(EnumDeclSyntax.self) else {
            throw Misuse.notAnEnum(kind).at(attribute, FixIt.changing(self, to: .enum))
        }
        return type
    }

    /// Returns the declaration as a struct.
    ///
    /// - Throws: the diagnostic for another declaration.
    fileprivate func requireStruct(_ kind: RemoteValueKind, _ attribute: AttributeSyntax) throws -> StructDeclSyntax {
        guard let type = self.as(StructDeclSyntax.self) else {
            throw Misuse.notAStruct(kind).at(attribute, FixIt.changing(self, to: .struct))
        }
        return type
    }

    /// - Throws: the diagnostic for a type that has both a property `default` and the argument `enabledByDefault`.
    fileprivate func checkDefault(_ kind: RemoteValueKind, _ attribute: AttributeSyntax) throws {
        guard let property = defaultProperty, attribute.argument(labelled: "enabledByDefault") != nil else { return }
        throw Misuse.twoDefaults(kind).at(property)
    }

    /// Returns the members of a type with a baseline: two properties and an initializer.
    ///
    /// - Parameters:
    ///   - name: the name of the property besides `baseline`.
    ///   - type: the type of that property.
    fileprivate func baselineMembers(name: String, type: String) -> [DeclSyntax] {
        let access = memberAccess
        return [
            "\(raw: access)let baseline: Bool",
            "\(raw: access)let \(raw: name): \(raw: type)",
            """
            \(raw: access)init(baseline: Bool, \(raw: name): \(raw: type)) {
                self.baseline = baseline
                self.\(raw: name) = \(raw: name)
            }
            """,
        ]
    }
}

/// `@RemoteValuesNamespace enum Values { … }`: adds to each nested type the macro that fits its shape.
enum RemoteValuesNamespaceMacro: MemberAttributeMacro {
    static func expansion(
        of node: AttributeSyntax, attachedTo declaration: some DeclGroupSyntax,
        providingAttributesFor member: some DeclSyntaxProtocol, in context: some MacroExpansionContext
    ) throws -> [AttributeSyntax] {
        let isFirst = declaration.memberBlock.members.first?.decl.trimmedDescription == member.trimmedDescription
        guard declaration.is(EnumDeclSyntax.self) else {
            // The compiler calls this for each member. The misuse is reported for the first one only.
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
