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
        /// What is offered, and what it puts in.
        var fix: (offer: String, text: String)?

        var testDescription: String { "\(attribute) \(declaration)" }
    }

    @Test(arguments: [
        Misuse(
            attribute: "@StringRemoteValue", declaration: "struct A {\n}",
            message: "@StringRemoteValue requires an enum", fix: ("replace 'struct' with 'enum'", "enum")),
        Misuse(
            attribute: "@StringRemoteValue", declaration: "enum A {\n    case a\n}",
            message: "'A' must have raw values of type String", line: 2, column: 6,
            fix: ("add ': String'", "enum A: String {")),
        Misuse(
            attribute: "@StringRemoteValue", declaration: "enum A: Int {\n    case a\n}",
            message: "'A' must have raw values of type String", line: 2, column: 6),
        Misuse(
            attribute: "@StringRemoteValue", declaration: "enum A: String {\n}",
            message: "'A' must have a case; the first one is the default", line: 2, column: 6),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "class A {\n}",
            message: "@BoolRemoteValue requires an enum", fix: ("replace 'class' with 'enum'", "enum")),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "enum A {\n    case enabled, off\n}",
            message: "'A' must have the cases 'enabled' and 'disabled'", line: 2, column: 6),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "enum A {}",
            message: "'A' must have the cases 'enabled' and 'disabled'", line: 2, column: 6,
            fix: ("add 'case enabled, disabled'", "\n    case enabled, disabled\n")),
        Misuse(
            attribute: "@BoolRemoteValue", declaration: "enum A {\n    static let `default` = Self.enabled\n}",
            message: "'A' must have the cases 'enabled' and 'disabled'", line: 2, column: 6,
            fix: (
                "add 'case enabled, disabled'",
                "\n    case enabled, disabled\n    static let"
            )),
        Misuse(
            attribute: "@BoolRemoteValue(enabledByDefault: true)",
            declaration: "enum A {\n    case enabled, disabled\n    static let `default`: Self = .enabled\n}",
            message: "remove either this property or the argument 'enabledByDefault' of @BoolRemoteValue", line: 4,
            column: 5),
        Misuse(
            attribute: "@BaselineStringRemoteValue", declaration: "enum A {\n}",
            message: "@BaselineStringRemoteValue requires a struct",
            fix: ("replace 'enum' with 'struct'", "struct")),
        Misuse(
            attribute: "@BaselineStringRemoteValue", declaration: "struct A {\n}",
            message: "'A' must contain an 'enum Variant: String' with the variants", line: 2, column: 8),
        Misuse(
            attribute: "@BaselineBoolRemoteValue", declaration: "struct A {\n    let isEnabled: Bool\n}",
            message: "'A' must have no stored properties; the macro adds them", line: 2, column: 8),
    ])
    func `Misuse is reported once, where it is`(misuse: Misuse) throws {
        let expansion = try Expansion(of: "\(misuse.attribute)\n\(misuse.declaration)\n")
        let place = "\(misuse.line):\(misuse.column)"
        let offers = misuse.fix.map { ["\(place): note: \($0.offer)"] } ?? []
        #expect(expansion.diagnostics == ["\(place): error: \(misuse.message)"] + offers)
        if let fix = misuse.fix { #expect(expansion.offers(fix.text)) }
    }

    @Test func `A namespace is an enum`() throws {
        let expansion = try Expansion(
            of: "@RemoteValuesNamespace\nstruct Values {\n    enum A {\n    }\n    enum B {\n    }\n}\n")
        #expect(
            expansion.diagnostics == [
                "1:1: error: @RemoteValuesNamespace requires an enum", "1:1: note: replace 'struct' with 'enum'",
            ])
    }

    @Test func `A type of a namespace that is no remote value is pointed out`() throws {
        let expansion = try Expansion(
            of: "@RemoteValuesNamespace\nenum Values {\n    enum A: Int {\n        case one\n    }\n}\n")
        #expect(
            expansion.diagnostics == [
                """
                3:5: warning: not a remote value: expected an enum with String cases, an enum with the cases 'enabled' \
                and 'disabled', a struct with an 'enum Variant', or an empty struct
                """
            ])
    }
}
