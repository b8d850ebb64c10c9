import SwiftDiagnostics
import SwiftSyntax
import SwiftSyntaxBuilder

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
