import SwiftDiagnostics
import SwiftSyntaxMacrosGenericTestSupport
import Testing

/// Each misuse of a macro: the message, its place, and the fix that the compiler offers.
struct MisuseTests {
    struct Misuse: Sendable, CustomTestStringConvertible {
        var attribute: String
        var declaration: String
        var message: String
        /// The line and column of the message; the attribute is on line 1, the declaration begins on line 2.
        var line = 1
        var column = 1
        var fix: (offer: String, declaration: String)?

        var testDescription: String { "\(attribute) \(declaration)" }
    }

    @Test(arguments: [
        Misuse(
            attribute: "@StringRemoteValue", declaration: "struct A {\n}",
            message: "@StringRemoteValue requires an enum", fix: ("replace 'struct' with 'enum'", "enum A {\n}")),
        Misuse(
            attribute: "@StringRemoteValue", declaration: "enum A {\n    case a\n}",
            message: "'A' must have raw values of type String", line: 2, column: 6,
            fix: ("add ': String'", "enum A: String {\n    case a\n}")),
        Misuse(
            attribute: "@StringRemoteValue", declaration: "enum A: Int {\n    case a\n}",
            message: "'A' must have raw values of type String", line: 2, column: 6),
        Misuse(
            attribute: "@StringRemoteValue", declaration: "enum A: String {\n}",
            message: "'A' must have a case; the first one is the default", line: 2, column: 6),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "class A {\n}",
            message: "@BoolRemoteValue requires an enum", fix: ("replace 'class' with 'enum'", "enum A {\n}")),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "enum A {\n    case enabled, off\n}",
            message: "'A' must have the cases 'enabled' and 'disabled'", line: 2, column: 6),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "enum A {}",
            message: "'A' must have the cases 'enabled' and 'disabled'", line: 2, column: 6,
            fix: ("add 'case enabled, disabled'", "enum A {\n    case enabled, disabled\n}")),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "enum A {\n    static let `default` = Self.enabled\n}",
            message: "'A' must have the cases 'enabled' and 'disabled'", line: 2, column: 6,
            fix: (
                "add 'case enabled, disabled'",
                "enum A {\n    case enabled, disabled\n    static let `default` = Self.enabled\n}"
            )),
        Misuse(
            attribute: "@BoolRemoteValue(enabledByDefault: true)",
            declaration: "enum A {\n    case enabled, disabled\n    static let `default`: Self = .enabled\n}",
            message: "remove either this property or the argument 'enabledByDefault' of @BoolRemoteValue", line: 4,
            column: 5),
        Misuse(
            attribute: "@BaselineStringRemoteValue", declaration: "enum A {\n}",
            message: "@BaselineStringRemoteValue requires a struct",
            fix: ("replace 'enum' with 'struct'", "struct A {\n}")),
        Misuse(
            attribute: "@BaselineStringRemoteValue", declaration: "struct A {\n}",
            message: "'A' must contain an 'enum Variant: String' with the variants", line: 2, column: 8),
        Misuse(
            attribute: "@BaselineBoolRemoteValue", declaration: "struct A {\n    let isEnabled: Bool\n}",
            message: "'A' must have no stored properties; the macro adds them", line: 2, column: 8),
    ])
    func `Misuse is reported once, where it is`(misuse: Misuse) {
        expectExpansion(
            of: "\(misuse.attribute)\n\(misuse.declaration)", is: misuse.declaration,
            diagnostics: [
                DiagnosticSpec(
                    message: misuse.message, line: misuse.line, column: misuse.column,
                    fixIts: misuse.fix.map { [FixItSpec(message: $0.offer)] } ?? [])
            ],
            fixed: misuse.fix.map { "\(misuse.attribute)\n\($0.declaration)" })
    }

    @Test func `A namespace is an enum`() {
        expectExpansion(
            of: "@RemoteValuesNamespace\nstruct Values {\n    enum A {\n    }\n    enum B {\n    }\n}",
            is: "struct Values {\n    enum A {\n    }\n    enum B {\n    }\n}",
            diagnostics: [
                DiagnosticSpec(
                    message: "@RemoteValuesNamespace requires an enum", line: 1, column: 1,
                    fixIts: [FixItSpec(message: "replace 'struct' with 'enum'")])
            ])
    }

    @Test func `A type of a namespace that is no remote value is pointed out`() {
        expectExpansion(
            of: "@RemoteValuesNamespace\nenum Values {\n    enum A: Int {\n        case one\n    }\n}",
            is: "enum Values {\n    enum A: Int {\n        case one\n    }\n}",
            diagnostics: [
                DiagnosticSpec(
                    message: """
                        not a remote value: expected an enum with String cases, an enum with the cases 'enabled' \
                        and 'disabled', a struct with an 'enum Variant', or an empty struct
                        """, line: 3, column: 5, severity: .warning)
            ])
    }
}
