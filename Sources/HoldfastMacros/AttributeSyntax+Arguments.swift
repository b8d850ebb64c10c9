import SwiftParser
import SwiftSyntax

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
