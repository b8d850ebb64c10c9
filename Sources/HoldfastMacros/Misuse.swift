import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder

/// What can be wrong where a macro is used, as the compiler tells it.
enum Misuse: DiagnosticMessage {
    case notAProperty(RemoteValueKind)
    case outsideOfNamespace(RemoteValueKind)
    case severalMacros
    case modifier(String)
    case constant
    case severalNames
    case computed
    case namedBaseline
    case notALiteral
    case noDefault(String)
    case noType(String)
    case optional(String)
    case boolWithoutDefaultArgument(RemoteValueKind)
    case initialValue(RemoteValueKind)
    case notBool(String, RemoteValueKind)
    case notAStruct
    case emptyNamespace
    case storedProperty
    case repeatedKey(String)

    var message: String {
        switch self {
        case .notAProperty(let kind):
            "@\(kind.attributeName) belongs on a property"
        case .outsideOfNamespace(let kind):
            "@\(kind.attributeName) belongs in the body of a struct marked @RemoteValuesNamespace, or in an extension of RemoteValues"
        case .severalMacros:
            "a property is one remote value; remove all but one of the macros"
        case .modifier(let modifier):
            "a remote value cannot be '\(modifier)'"
        case .constant:
            "a remote value changes with what is fetched; use 'var'"
        case .severalNames:
            "declare each remote value by itself: 'var name'"
        case .computed:
            "a remote value cannot have accessors; the macro writes its getter"
        case .namedBaseline:
            "name the value itself; the macro adds its baseline, 'nameBaseline', under a key with the suffix '_baseline'"
        case .notALiteral:
            "a remote key has to be a string literal, not empty and without interpolation"
        case .noDefault(let name):
            "'\(name)' needs a default, for when nothing has been fetched"
        case .noType(let name):
            "the type of '\(name)' cannot be told from its default; write 'var \(name): Type'"
        case .optional(let name):
            "'\(name)' always has a value, its default if nothing else; it cannot be optional"
        case .boolWithoutDefaultArgument(let kind):
            "a Bool needs @\(kind.hasBaseline ? "Baseline" : "")BoolRemoteValue(enabledByDefault:)"
        case .initialValue(let kind):
            "the default of a @\(kind.attributeName) is 'enabledByDefault'; remove the initial value"
        case .notBool(let name, let kind):
            "@\(kind.attributeName) needs 'var \(name): Bool'"
        case .notAStruct:
            "@RemoteValuesNamespace belongs on a struct"
        case .emptyNamespace:
            "the namespace has no remote values"
        case .storedProperty:
            "each stored property of a namespace is a remote value; mark it as one, or make it static or computed"
        case .repeatedKey(let key):
            "the remote key '\(key)' is used twice in this namespace"
        }
    }

    var diagnosticID: MessageID {
        let name = Mirror(reflecting: self).children.first?.label ?? "\(self)"
        return MessageID(domain: "HoldfastMacros", id: name)
    }

    var severity: DiagnosticSeverity {
        if case .emptyNamespace = self { .warning } else { .error }
    }

    func diagnostic(at node: some SyntaxProtocol, _ fixIts: [FixIt] = []) -> Diagnostic {
        Diagnostic(node: node, message: self, fixIts: fixIts)
    }

    func at(_ node: some SyntaxProtocol, _ fixIts: FixIt...) -> DiagnosticsError {
        DiagnosticsError(diagnostics: [diagnostic(at: node, fixIts)])
    }
}

/// The text of a correction the compiler offers.
private struct Correction: FixItMessage {
    let message: String
    let id: String

    var fixItID: MessageID { MessageID(domain: "HoldfastMacros", id: id) }
}

extension FixIt {
    /// Puts one piece of source in the place of another, keeping the space around it.
    static func replacing<New: SyntaxProtocol>(_ old: some SyntaxProtocol, with new: New) -> FixIt {
        let placed = new.with(\.leadingTrivia, old.leadingTrivia).with(\.trailingTrivia, old.trailingTrivia)
        return FixIt(
            message: Correction(message: "replace by '\(new.trimmedDescription)'", id: "replace"),
            changes: [.replace(oldNode: Syntax(old), newNode: Syntax(placed))])
    }

    static func replacing(_ old: TokenSyntax, with kind: TokenKind) -> FixIt {
        replacing(old, with: TokenSyntax(kind, presence: .present))
    }

    /// Takes a modifier off a property.
    static func removing(_ modifier: DeclModifierSyntax, from variable: VariableDeclSyntax) -> FixIt {
        var corrected = variable
        corrected.modifiers = variable.modifiers.filter { $0.id != modifier.id }
        return removal(of: modifier, from: variable, leaving: corrected)
    }

    /// Takes an attribute off a property.
    static func removing(_ attribute: AttributeSyntax, from variable: VariableDeclSyntax) -> FixIt {
        var corrected = variable
        corrected.attributes = variable.attributes.filter { $0.trimmedDescription != attribute.trimmedDescription }
        return removal(of: attribute, from: variable, leaving: corrected)
    }

    private static func removal(
        of node: some SyntaxProtocol, from variable: VariableDeclSyntax, leaving corrected: VariableDeclSyntax
    ) -> FixIt {
        FixIt(
            message: Correction(message: "remove '\(node.trimmedDescription)'", id: "remove"),
            changes: [.replace(oldNode: Syntax(variable), newNode: Syntax(corrected.with(\.leadingTrivia, variable.leadingTrivia)))])
    }

    /// Gives a property an initial value.
    static func giving(_ binding: PatternBindingSyntax, initialValue: ExprSyntax) -> FixIt {
        var corrected = binding.trimmed
        corrected.initializer = InitializerClauseSyntax(
            equal: .equalToken(leadingTrivia: .space, trailingTrivia: .space), value: initialValue)
        return replacing(binding, with: corrected)
    }

    /// Makes an enum, a class or an actor a struct.
    static func makingStruct(of declaration: some DeclGroupSyntax) -> [FixIt] {
        [.keyword(.enum), .keyword(.class), .keyword(.actor)].contains(declaration.introducer.tokenKind)
            ? [replacing(declaration.introducer, with: .keyword(.struct))] : []
    }
}
