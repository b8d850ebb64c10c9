import SwiftSyntax

/// The kinds of remote values that have a macro.
enum RemoteValueKind: String, CaseIterable {
    case string = "StringRemoteValue"
    case bool = "BoolRemoteValue"
    case baselineString = "BaselineStringRemoteValue"
    case baselineBool = "BaselineBoolRemoteValue"

    /// The name of the attribute, and of the macro.
    var attributeName: String { rawValue }

    /// The kind that fits a type declaration by its shape; `nil` if no kind fits.
    init?(shapeOf declaration: some SyntaxProtocol) {
        if let type = declaration.as(EnumDeclSyntax.self) {
            if type.hasStringRawValue, type.hasCases {
                self = .string
            } else if type.hasBoolCases || type.isEmpty {
                // The macro reports an empty enum, and offers to add the cases.
                self = .bool
            } else {
                return nil
            }
        } else if let type = declaration.as(StructDeclSyntax.self) {
            if type.variant != nil, !type.hasStoredProperties {
                self = .baselineString
            } else if type.isEmpty {
                self = .baselineBool
            } else {
                return nil
            }
        } else {
            return nil
        }
    }

    /// The kind whose attribute a declaration has; `nil` if it has none.
    init?(attributeOf declaration: some DeclGroupSyntax) {
        let names = declaration.attributes.compactMap { $0.as(AttributeSyntax.self)?.attributeName.trimmedDescription }
        guard let kind = names.compactMap({ RemoteValueKind(rawValue: $0) }).first else { return nil }
        self = kind
    }
}

extension DeclGroupSyntax {
    /// The access level that generated members need, followed by a space. It is empty if the default level suffices.
    var memberAccess: String {
        for modifier in modifiers {
            switch modifier.name.tokenKind {
            case .keyword(.public), .keyword(.open): return "public "
            case .keyword(.package): return "package "
            default: continue
            }
        }
        return ""
    }

    /// Whether the declaration has neither stored properties, nor cases, nor nested types.
    var isEmpty: Bool { !hasStoredProperties && !hasCases && nestedTypes.isEmpty }

    var hasCases: Bool { memberBlock.members.contains { $0.decl.is(EnumCaseDeclSyntax.self) } }

    /// Whether the cases are exactly `enabled` and `disabled`.
    var hasBoolCases: Bool {
        let elements = memberBlock.members.compactMap { $0.decl.as(EnumCaseDeclSyntax.self) }.flatMap(\.elements)
        return elements.map(\.name.text).sorted() == ["disabled", "enabled"]
            && elements.allSatisfy { $0.parameterClause == nil }
    }

    /// Whether the type has stored properties, other than static ones.
    var hasStoredProperties: Bool {
        memberBlock.members.contains { member in
            guard let variable = member.decl.as(VariableDeclSyntax.self), !variable.isStatic else { return false }
            return variable.bindings.contains { $0.accessorBlock == nil }
        }
    }

    var nestedTypes: [any DeclGroupSyntax] {
        memberBlock.members.compactMap { member in
            member.decl.asProtocol((any DeclGroupSyntax).self)
        }
    }

    /// The nested enum `Variant`; `nil` if there is none.
    var variant: EnumDeclSyntax? {
        memberBlock.members.lazy.compactMap { $0.decl.as(EnumDeclSyntax.self) }.first { $0.name.text == "Variant" }
    }

    var hasStringRawValue: Bool {
        inheritanceClause?.inheritedTypes.contains { ["String", "Swift.String"].contains($0.type.trimmedDescription) }
            == true
    }

    /// The static property `default`; `nil` if there is none.
    var defaultProperty: VariableDeclSyntax? {
        memberBlock.members.lazy.compactMap { $0.decl.as(VariableDeclSyntax.self) }.first { variable in
            variable.isStatic
                && variable.bindings.contains {
                    ["default", "`default`"].contains($0.pattern.trimmedDescription)
                }
        }
    }

    /// Whether the declaration itself, rather than an extension, names a protocol.
    func inherits(_ name: String) -> Bool {
        inheritanceClause?.inheritedTypes.contains { $0.type.trimmedDescription == name } == true
    }
}

extension VariableDeclSyntax {
    fileprivate var isStatic: Bool { modifiers.contains { ["static", "class"].contains($0.name.text) } }
}

extension AttributeSyntax {
    /// The expression of a labelled argument; `nil` if the argument is missing.
    func argument(labelled label: String) -> ExprSyntax? {
        arguments?.as(LabeledExprListSyntax.self)?.first { $0.label?.text == label }?.expression
    }
}
