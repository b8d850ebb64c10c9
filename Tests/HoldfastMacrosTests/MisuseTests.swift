import SwiftSyntaxMacrosGenericTestSupport
import Testing

/// Each misuse of a macro for one value: what the compiler says, where, and what it offers to do about it.
struct MisuseTests {
    struct Misuse: Sendable, CustomTestStringConvertible {
        var attribute: String
        var property: String
        var message: String
        /// The column in the line `    @Attribute property`.
        var column: Int
        /// What the compiler offers, and the line it would make of it.
        var fix: (offer: String, line: String)?

        /// What the compiler goes on with after the message: a getter, so that it does not also report that there is none.
        var expansion: String {
            if property.hasPrefix("func") { return property }
            let declaration = property.prefix(while: { $0 != "=" })
            return """
                \(declaration.hasSuffix(" ") ? declaration.dropLast() : declaration) {
                        get {
                            fatalError()
                        }
                    }
                """
        }

        var testDescription: String { "\(attribute) \(property)" }
    }

    static let misuses: [Misuse] = [
        Misuse(
            attribute: "@StringRemoteValue", property: #"let title = "News""#,
            message: "a remote value changes with what is fetched; use 'var'", column: 24,
            fix: ("replace by 'var'", #"@StringRemoteValue var title = "News""#)),
        Misuse(
            attribute: "@StringRemoteValue", property: #"static var title = "News""#,
            message: "a remote value cannot be 'static'", column: 24,
            fix: ("remove 'static'", #"@StringRemoteValue var title = "News""#)),
        Misuse(
            attribute: "@StringRemoteValue", property: #"private(set) var title = "News""#,
            message: "a remote value cannot be 'private(set)'", column: 24,
            fix: ("remove 'private(set)'", #"@StringRemoteValue var title = "News""#)),
        Misuse(
            attribute: "@StringRemoteValue", property: #"public lazy var title = "News""#,
            message: "a remote value cannot be 'lazy'", column: 31,
            fix: ("remove 'lazy'", #"@StringRemoteValue public var title = "News""#)),
        Misuse(
            attribute: "@StringRemoteValue", property: #"var (title, subtitle) = ("News", "All")"#,
            message: "declare each remote value by itself: 'var name'", column: 28),
        Misuse(
            attribute: "@StringRemoteValue", property: "var title: String",
            message: "'title' needs a default, for when nothing has been fetched", column: 28,
            fix: (#"replace by 'title: String = ""'"#, #"@StringRemoteValue var title: String = """#)),
        Misuse(
            attribute: "@StringRemoteValue", property: "var title = fallback",
            message: "the type of 'title' cannot be told from its default; write 'var title: Type'", column: 28),
        Misuse(
            attribute: "@StringRemoteValue", property: #"var title: String? = "News""#,
            message: "'title' always has a value, its default if nothing else; it cannot be optional", column: 35,
            fix: ("replace by 'String'", #"@StringRemoteValue var title: String = "News""#)),
        Misuse(
            attribute: "@StringRemoteValue", property: "var isNew = true",
            message: "a Bool needs @BoolRemoteValue(enabledByDefault:)", column: 28),
        Misuse(
            attribute: "@BaselineStringRemoteValue", property: "var isNew: Bool = initially",
            message: "a Bool needs @BaselineBoolRemoteValue(enabledByDefault:)", column: 36),
        Misuse(
            attribute: #"@StringRemoteValue(key: "a\(b)")"#, property: #"var title = "News""#,
            message: "a remote key has to be a string literal, not empty and without interpolation", column: 29),
        Misuse(
            attribute: #"@StringRemoteValue(key: "")"#, property: #"var title = "News""#,
            message: "a remote key has to be a string literal, not empty and without interpolation", column: 29),
        Misuse(
            attribute: "@BoolRemoteValue(enabledByDefault: true)", property: "var isNew",
            message: "@BoolRemoteValue needs 'var isNew: Bool'", column: 50,
            fix: ("replace by 'isNew: Bool'", "@BoolRemoteValue(enabledByDefault: true) var isNew: Bool")),
        Misuse(
            attribute: "@BaselineBoolRemoteValue(enabledByDefault: true)", property: "var isNew: String",
            message: "@BaselineBoolRemoteValue needs 'var isNew: Bool'", column: 58,
            fix: ("replace by 'isNew: Bool'", "@BaselineBoolRemoteValue(enabledByDefault: true) var isNew: Bool")),
        Misuse(
            attribute: "@BoolRemoteValue(enabledByDefault: true)", property: "var isNew: Bool = true",
            message: "the default of a @BoolRemoteValue is 'enabledByDefault'; remove the initial value", column: 50,
            fix: ("replace by 'isNew: Bool'", "@BoolRemoteValue(enabledByDefault: true) var isNew: Bool")),
        Misuse(
            attribute: "@BaselineStringRemoteValue", property: #"var layoutBaseline = "grid""#,
            message: "name the value itself; the macro adds its baseline, 'nameBaseline', under a key with the suffix '_baseline'",
            column: 36),
        Misuse(
            attribute: #"@BaselineStringRemoteValue(key: "layout_baseline")"#, property: #"var layout = "grid""#,
            message: "name the value itself; the macro adds its baseline, 'nameBaseline', under a key with the suffix '_baseline'",
            column: 5),
        Misuse(
            attribute: "@StringRemoteValue", property: "func title() {}",
            message: "@StringRemoteValue belongs on a property", column: 5),
    ]

    @Test(arguments: misuses)
    func isToldWhereItIs(misuse: Misuse) {
        func source(_ line: String) -> String { "extension RemoteValues {\n    \(line)\n}" }
        expectExpansion(
            of: source("\(misuse.attribute) \(misuse.property)"), is: source(misuse.expansion),
            diagnostics: [
                DiagnosticSpec(
                    message: misuse.message, line: 2, column: misuse.column,
                    fixIts: misuse.fix.map { [FixItSpec(message: $0.offer)] } ?? [])
            ],
            fixed: misuse.fix.map { source($0.line) })
    }

    @Test func aPropertyHasNoAccessorsOfItsOwn() {
        expectExpansion(
            of: """
                extension RemoteValues {
                    @StringRemoteValue var title: String {
                        get { "News" }
                    }
                }
                """,
            is: """
                extension RemoteValues {
                    var title: String {
                        get { "News" }
                        get {
                            fatalError()
                        }
                    }
                }
                """,
            diagnostics: [
                DiagnosticSpec(
                    message: "a remote value cannot have accessors; the macro writes its getter", line: 2, column: 42)
            ])
    }

    @Test func aPropertyIsOneRemoteValue() {
        expectExpansion(
            of: """
                extension RemoteValues {
                    @StringRemoteValue @BaselineStringRemoteValue var title = "News"
                }
                """,
            is: """
                extension RemoteValues {
                    var title {
                        get {
                            self[Self.$title]
                        }
                        get {
                            fatalError()
                        }
                    }

                    static var $title: RemoteValue<String> {
                        RemoteValue("title", default: "News")
                    }
                }
                """,
            diagnostics: [
                DiagnosticSpec(
                    message: "a property is one remote value; remove all but one of the macros", line: 2, column: 24,
                    fixIts: [FixItSpec(message: "remove '@BaselineStringRemoteValue'")])
            ],
            fixed: """
                extension RemoteValues {
                    @StringRemoteValue var title = "News"
                }
                """)
    }

    @Test(arguments: ["struct Plain", "extension FeedValues", "func local()"])
    func aValueStandsInANamespaceOrInRemoteValues(place: String) {
        expectExpansion(
            of: "\(place) {\n    @StringRemoteValue var title = \"News\"\n}",
            is: """
                \(place) {
                    var title {
                        get {
                            fatalError()
                        }
                    }
                }
                """,
            diagnostics: [
                DiagnosticSpec(
                    message: "@StringRemoteValue belongs in the body of a struct marked @RemoteValuesNamespace, "
                        + "or in an extension of RemoteValues",
                    line: 2, column: 5)
            ])
    }
}
