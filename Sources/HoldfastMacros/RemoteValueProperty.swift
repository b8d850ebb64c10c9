import SwiftDiagnostics
import SwiftSyntax
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
