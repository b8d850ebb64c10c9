import SwiftDiagnostics
import SwiftSyntaxMacrosGenericTestSupport
import Testing

/// Each misuse of the macro for a namespace.
struct NamespaceMisuseTests {
    /// What the macro adds to a struct with these keys.
    private func namespace(_ body: String, keys: String) -> String {
        """
        struct FeedValues {
        \(body)
            let remoteValues: RemoteValues

            init(_ remoteValues: RemoteValues) {
                self.remoteValues = remoteValues
            }

            static var remoteKeys: [RemoteKey] {
                [\(keys)]
            }
        }

        extension FeedValues: RemoteValuesNamespace {
        }
        """
    }

    @Test(arguments: ["enum", "class", "actor"])
    func aNamespaceIsAStruct(keyword: String) {
        expectExpansion(
            of: "@RemoteValuesNamespace \(keyword) FeedValues {}", is: "\(keyword) FeedValues {}",
            diagnostics: [
                DiagnosticSpec(
                    message: "@RemoteValuesNamespace belongs on a struct", line: 1, column: 1,
                    fixIts: [FixItSpec(message: "replace by 'struct'")])
            ],
            fixed: "@RemoteValuesNamespace struct FeedValues {}")
    }

    @Test func aProtocolCannotBeMadeOne() {
        expectExpansion(
            of: "@RemoteValuesNamespace protocol FeedValues {}", is: "protocol FeedValues {}",
            diagnostics: [DiagnosticSpec(message: "@RemoteValuesNamespace belongs on a struct", line: 1, column: 1)])
    }

    @Test func storedPropertiesAreRemoteValues() {
        expectExpansion(
            of: """
                @RemoteValuesNamespace struct FeedValues {
                    @StringRemoteValue var title = "News"
                    var count = 1
                }
                """,
            is: namespace(
                """
                    var title {
                        get {
                            self[Self.$title]
                        }
                    }

                    static var $title: RemoteValue<String> {
                        RemoteValue("title", default: "News")
                    }
                    var count = 1

                """, keys: "\"title\""),
            diagnostics: [
                DiagnosticSpec(
                    message: "each stored property of a namespace is a remote value; mark it as one, or make it static or computed",
                    line: 3, column: 5)
            ])
    }

    @Test func aKeyIsUsedOnce() {
        expectExpansion(
            of: """
                @RemoteValuesNamespace("a") struct FeedValues {
                    @BaselineStringRemoteValue var title = "News"
                    @StringRemoteValue(key: "title_baseline") var other = "News"
                }
                """,
            is: namespace(
                """
                    var title {
                        get {
                            self[Self.$title]
                        }
                    }

                    static var $title: RemoteValue<String> {
                        RemoteValue("a.title", baselineKey: "a.title_baseline", default: "News")
                    }

                    var titleBaseline: String {
                        self[Self.$title.baseline]
                    }
                    var other {
                        get {
                            self[Self.$other]
                        }
                    }

                    static var $other: RemoteValue<String> {
                        RemoteValue("a.title_baseline", default: "News")
                    }

                """, keys: #""a.title", "a.title_baseline", "a.title_baseline""#),
            diagnostics: [
                DiagnosticSpec(
                    message: "the remote key 'a.title_baseline' is used twice in this namespace", line: 3, column: 5)
            ])
    }

    @Test func anEmptyNamespaceIsWarnedOf() {
        expectExpansion(
            of: "@RemoteValuesNamespace struct FeedValues {\n}",
            is: namespace("", keys: ""),
            diagnostics: [
                DiagnosticSpec(message: "the namespace has no remote values", line: 1, column: 31, severity: .warning)
            ])
    }

    @Test func aPrefixIsALiteral() {
        expectExpansion(
            of: "@RemoteValuesNamespace(prefix) struct FeedValues {}",
            is: "struct FeedValues {}\n\nextension FeedValues: RemoteValuesNamespace {\n}",
            diagnostics: [
                DiagnosticSpec(
                    message: "a remote key has to be a string literal, not empty and without interpolation",
                    line: 1, column: 24)
            ])
    }
}
