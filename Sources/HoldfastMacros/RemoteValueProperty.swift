import SwiftDiagnostics
import SwiftParser
import SwiftSyntax
import SwiftSyntaxBuilder
import SwiftSyntaxMacros

/// A property marked as a remote value, read and found right.
struct RemoteValueProperty {
    /// The suffix of the key that holds the value of those outside an experiment.
    static let baselineSuffix = "_baseline"

    /// The name, without backticks.
    let name: String
    /// The whole remote key, the namespace's prefix included.
    let key: String
    /// The key of the baseline, for the kinds that have one.
    let baselineKey: String?
    let type: TypeSyntax
    let defaultValue: ExprSyntax
    /// `public`, `package`, …; nil if none is written.
    let access: String?

    /// - Throws: `DiagnosticsError`, with the place and, where one is natural, a fix.
    init(
        _ declaration: some DeclSyntaxProtocol, attribute: AttributeSyntax, kind: RemoteValueKind,
        in context: some MacroExpansionContext
    ) throws {
        guard let variable = declaration.as(VariableDeclSyntax.self) else {
            throw Misuse.notAProperty(kind).at(attribute)
        }
        let prefix = try RemoteValueScope(of: attribute, kind: kind, in: context).prefix
        try self.init(variable, attribute: attribute, kind: kind, prefix: prefix)
    }

    /// Reads a property whose place, a type with this prefix, is known to be right.
    init(_ variable: VariableDeclSyntax, attribute: AttributeSyntax, kind: RemoteValueKind, prefix: String) throws {
        if let first = variable.remoteValueAttributes.first, first.kind.attributeName != kind.attributeName {
            throw Misuse.severalMacros.at(attribute, FixIt.removing(attribute, from: variable))
        }
        access = try Self.access(of: variable)
        if variable.bindingSpecifier.tokenKind == .keyword(.let) {
            throw Misuse.constant.at(variable.bindingSpecifier, FixIt.replacing(variable.bindingSpecifier, with: .keyword(.var)))
        }
        guard let binding = variable.bindings.first, variable.bindings.count == 1,
            let identifier = binding.pattern.as(IdentifierPatternSyntax.self)?.identifier
        else { throw Misuse.severalNames.at(variable.bindings) }
        if let accessors = binding.accessorBlock { throw Misuse.computed.at(accessors) }

        name = identifier.text.filter { $0 != "`" }
        if kind.hasBaseline, name.hasSuffix("Baseline") { throw Misuse.namedBaseline.at(identifier) }
        let ownKey = try attribute.literal(labelled: "key", kind: kind) ?? name.snakeCased
        if kind.hasBaseline, ownKey.hasSuffix(Self.baselineSuffix) { throw Misuse.namedBaseline.at(attribute) }
        key = prefix.isEmpty ? ownKey : "\(prefix).\(ownKey)"
        baselineKey = kind.hasBaseline ? key + Self.baselineSuffix : nil

        (type, defaultValue) = try kind.isBool
            ? binding.boolDefault(name: name, attribute: attribute, kind: kind)
            : binding.stringDefault(name: name, kind: kind)
    }

    /// The access level; any modifier that is not one has no meaning for a remote value.
    private static func access(of variable: VariableDeclSyntax) throws -> String? {
        let levels: Set<Keyword> = [.private, .fileprivate, .internal, .package, .public]
        var access: String?
        for modifier in variable.modifiers {
            if case .keyword(let keyword) = modifier.name.tokenKind, levels.contains(keyword), modifier.detail == nil {
                access = modifier.name.text
            } else {
                throw Misuse.modifier(modifier.trimmedDescription).at(modifier, FixIt.removing(modifier, from: variable))
            }
        }
        return access
    }
}

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

extension PatternBindingSyntax {
    /// The type and the default of `var name = "text"` or `var name: Type = value`.
    func stringDefault(name: String, kind: RemoteValueKind) throws -> (TypeSyntax, ExprSyntax) {
        let type = typeAnnotation?.type
        if type?.isBool == true || initializer?.value.is(BooleanLiteralExprSyntax.self) == true {
            throw Misuse.boolWithoutDefaultArgument(kind).at(self)
        }
        if let optional = type?.as(OptionalTypeSyntax.self) {
            throw Misuse.optional(name).at(optional, FixIt.replacing(optional, with: optional.wrappedType.trimmed))
        }
        guard let value = initializer?.value.trimmed else {
            throw Misuse.noDefault(name).at(self, FixIt.giving(self, initialValue: "\"\""))
        }
        if let type { return (type.trimmed, value) }
        guard value.is(StringLiteralExprSyntax.self) else { throw Misuse.noType(name).at(self) }
        return ("String", value)
    }

    /// The type of `var name: Bool`, and the default from the attribute.
    func boolDefault(name: String, attribute: AttributeSyntax, kind: RemoteValueKind) throws -> (TypeSyntax, ExprSyntax) {
        if initializer != nil {
            throw Misuse.initialValue(kind).at(self, FixIt.replacing(self, with: asBoolWithoutInitialValue))
        }
        guard let type = typeAnnotation?.type.trimmed, type.isBool else {
            throw Misuse.notBool(name, kind).at(self, FixIt.replacing(self, with: asBoolWithoutInitialValue))
        }
        guard let value = attribute.argument(labelled: "enabledByDefault") else { throw Misuse.noDefault(name).at(self) }
        return (type, value.trimmed)
    }

    private var asBoolWithoutInitialValue: PatternBindingSyntax {
        PatternBindingSyntax(
            pattern: pattern.trimmed, typeAnnotation: TypeAnnotationSyntax(colon: .colonToken(trailingTrivia: .space), type: TypeSyntax("Bool")))
    }
}

extension TypeSyntax {
    fileprivate var isBool: Bool {
        ["Bool", "Swift.Bool"].contains(trimmedDescription)
    }
}

extension AttributeSyntax {
    /// The argument with this label, nil for none; the label nil stands for an argument without a label.
    func argument(labelled label: String?) -> ExprSyntax? {
        arguments?.as(LabeledExprListSyntax.self)?.first { $0.label?.text == label }?.expression
    }

    /// The text of an argument that is part of a remote key, which has to be known to the compiler; nil without one.
    func literal(labelled label: String?, kind: RemoteValueKind) throws -> String? {
        guard let expression = argument(labelled: label) else { return nil }
        guard let text = expression.as(StringLiteralExprSyntax.self)?.representedLiteralValue, !text.isEmpty else {
            throw Misuse.notALiteral.at(expression)
        }
        return text
    }
}

extension VariableDeclSyntax {
    /// The attributes that make this property a remote value, each with what it stands for.
    var remoteValueAttributes: [(attribute: AttributeSyntax, kind: RemoteValueKind)] {
        attributes.compactMap { element in
            guard let attribute = element.as(AttributeSyntax.self) else { return nil }
            let name = attribute.attributeName.trimmedDescription
            return RemoteValueKind.all.first { $0.attributeName == name }.map { (attribute, $0) }
        }
    }
}

extension String {
    /// `buttonTitle` as `button_title`, `showsURLBar` as `shows_url_bar`, `step2Title` as `step2_title`.
    var snakeCased: String {
        let letters = Array(self)
        var result = ""
        for (index, letter) in letters.enumerated() {
            if letter.isUppercase, index > 0 {
                let follows = !letters[index - 1].isUppercase && letters[index - 1] != "_"
                let leads = letters[index - 1].isUppercase && index + 1 < letters.count && letters[index + 1].isLowercase
                if follows || leads { result.append("_") }
            }
            result.append(contentsOf: letter.lowercased())
        }
        return result
    }
}
