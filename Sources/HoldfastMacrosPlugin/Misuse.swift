import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder

/// The diagnostics of the macros: a declaration that a macro does not fit.
enum Misuse: DiagnosticMessage {
    case notAnEnum(RemoteValueKind)
    case notAStruct(RemoteValueKind)
    case noStringRawValue(String)
    case noCases(String)
    case noBoolCases(String)
    case noVariant(String)
    case storedProperties(String)
    case twoDefaults(RemoteValueKind)
    case namespaceIsNotAnEnum
    case unknownShape

    var message: String {
        switch self {
        case .notAnEnum(let kind):
            "@\(kind.attributeName) requires an enum"
        case .notAStruct(let kind):
            "@\(kind.attributeName) requires a struct"
        case .noStringRawValue(let name):
            "'\(name)' must have raw values of type String"
        case .noCases(let name):
            "'\(name)' must have a case; the first one is the default"
        case .noBoolCases(let name):
            "'\(name)' must have the cases 'enabled' and 'disabled'"
        case .noVariant(let name):
            "'\(name)' must contain an 'enum Variant: String' with the variants"
        case .storedProperties(let name):
            "'\(name)' must have no stored properties; the macro adds them"
        case .twoDefaults(let kind):
            "remove either this property or the argument 'enabledByDefault' of @\(kind.attributeName)"
        case .namespaceIsNotAnEnum:
            "@RemoteValuesNamespace requires an enum"
        case .unknownShape:
            """
            not a remote value: expected an enum with String cases, an enum with the cases 'enabled' and 'disabled', \
            a struct with an 'enum Variant', or an empty struct
            """
        }
    }

    /// Identifies the case, without its associated value.
    var diagnosticID: MessageID {
        let name = Mirror(reflecting: self).children.first?.label ?? "\(self)"
        return MessageID(domain: "HoldfastMacros", id: name)
    }

    var severity: DiagnosticSeverity {
        if case .unknownShape = self { .warning } else { .error }
    }

    /// Returns the diagnostic for a node.
    func diagnostic(at node: some SyntaxProtocol, _ fixIts: [FixIt] = []) -> Diagnostic {
        Diagnostic(node: node, message: self, fixIts: fixIts)
    }

    /// Returns the diagnostic for a node as an error.
    ///
    /// - Parameter fixIts: the corrections that the compiler offers; `nil` is left out.
    func at(_ node: some SyntaxProtocol, _ fixIts: FixIt?...) -> DiagnosticsError {
        DiagnosticsError(diagnostics: [diagnostic(at: node, fixIts.compactMap(\.self))])
    }
}

/// The text of a correction that the compiler offers.
private struct Correction: FixItMessage {
    let message: String
    let id: String

    var fixItID: MessageID { MessageID(domain: "HoldfastMacros", id: id) }
}

extension FixIt {
    /// Replaces the keyword of a type, such as `class` by `enum`; `nil` for declarations that are not types.
    static func changing(_ declaration: some DeclGroupSyntax, to keyword: Keyword) -> FixIt? {
        let old = declaration.introducer
        guard [.keyword(.enum), .keyword(.struct), .keyword(.class), .keyword(.actor)].contains(old.tokenKind) else {
            return nil
        }
        let new = TokenSyntax(
            .keyword(keyword), leadingTrivia: old.leadingTrivia, trailingTrivia: old.trailingTrivia, presence: .present)
        return FixIt(
            message: Correction(message: "replace '\(old.text)' with '\(new.text)'", id: "replace"),
            changes: [.replace(oldNode: Syntax(old), newNode: Syntax(new))])
    }

    /// Adds the cases of a bool value to an enum without cases; `nil` for an enum with cases.
    static func addingBoolCases(to type: EnumDeclSyntax) -> FixIt? {
        guard !type.hasCases else { return nil }
        var block = type.memberBlock
        let outer = Trivia(pieces: type.leadingTrivia.reversed().prefix { $0.isSpaceOrTab }.reversed())
        let indentation = block.members.first?.leadingTrivia ?? .newline + outer + .spaces(4)
        let cases: DeclSyntax = "case enabled, disabled"
        block.members.insert(
            MemberBlockItemSyntax(decl: cases.with(\.leadingTrivia, indentation)), at: block.members.startIndex)
        block.leftBrace.trailingTrivia = []
        if !block.rightBrace.leadingTrivia.contains(where: \.isNewline) {
            block.rightBrace.leadingTrivia = .newline + outer
        }
        return FixIt(
            message: Correction(message: "add 'case enabled, disabled'", id: "addCases"),
            changes: [.replace(oldNode: Syntax(type.memberBlock), newNode: Syntax(block))])
    }

    /// Adds `: String` to an enum that inherits nothing; `nil` for an enum that inherits something.
    static func addingStringRawValue(to type: EnumDeclSyntax) -> FixIt? {
        guard type.inheritanceClause == nil else { return nil }
        var new = type
        new.name.trailingTrivia = []
        new.inheritanceClause = InheritanceClauseSyntax(
            colon: .colonToken(trailingTrivia: .space),
            inheritedTypes: [InheritedTypeSyntax(type: TypeSyntax("String"))], trailingTrivia: .space)
        return FixIt(
            message: Correction(message: "add ': String'", id: "add"),
            changes: [.replace(oldNode: Syntax(type), newNode: Syntax(new))])
    }
}
