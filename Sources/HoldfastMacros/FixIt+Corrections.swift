import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder

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
