import Testing

/// Each macro for one value, used rightly.
struct RemoteValueMacroTests {
    @Test func stringBecomesAGetterAndADescription() {
        expectExpansion(
            of: """
                extension RemoteValues {
                    @StringRemoteValue var buttonTitle = "Buy"
                }
                """,
            is: """
                extension RemoteValues {
                    var buttonTitle {
                        get {
                            self[Self.$buttonTitle]
                        }
                    }

                    static var $buttonTitle: RemoteValue<String> {
                        RemoteValue("button_title", default: "Buy")
                    }
                }
                """)
    }

    @Test func boolTakesItsDefaultFromTheAttribute() {
        expectExpansion(
            of: """
                extension RemoteValues {
                    @BoolRemoteValue(enabledByDefault: false) var showsCoupons: Bool
                }
                """,
            is: """
                extension RemoteValues {
                    var showsCoupons: Bool {
                        get {
                            self[Self.$showsCoupons]
                        }
                    }

                    static var $showsCoupons: RemoteValue<Bool> {
                        RemoteValue("shows_coupons", default: false)
                    }
                }
                """)
    }

    @Test func baselineStringHasTwoKeysAndTwoProperties() {
        expectExpansion(
            of: """
                extension RemoteValues {
                    @BaselineStringRemoteValue public var layout: Layout = .grid
                }
                """,
            is: """
                extension RemoteValues {
                    public var layout: Layout {
                        get {
                            self[Self.$layout]
                        }
                    }

                    public static var $layout: RemoteValue<Layout> {
                        RemoteValue("layout", baselineKey: "layout_baseline", default: .grid)
                    }

                    public var layoutBaseline: Layout {
                        self[Self.$layout.baseline]
                    }
                }
                """)
    }

    @Test func baselineBoolHasTwoKeysAndTwoProperties() {
        expectExpansion(
            of: """
                extension RemoteValues {
                    @BaselineBoolRemoteValue(enabledByDefault: true, key: "sound") var playsSound: Bool
                }
                """,
            is: """
                extension RemoteValues {
                    var playsSound: Bool {
                        get {
                            self[Self.$playsSound]
                        }
                    }

                    static var $playsSound: RemoteValue<Bool> {
                        RemoteValue("sound", baselineKey: "sound_baseline", default: true)
                    }

                    var playsSoundBaseline: Bool {
                        self[Self.$playsSound.baseline]
                    }
                }
                """)
    }

    @Test func namespaceGathersItsKeysUnderItsPrefix() {
        expectExpansion(
            of: """
                @RemoteValuesNamespace("feed")
                public struct FeedValues {
                    @StringRemoteValue(key: "headline") private var title = "News"
                    @BaselineBoolRemoteValue(enabledByDefault: false) public var isNew: Bool
                    static let other = 1
                    var both: String { title + "!" }
                }
                """,
            is: """
                public struct FeedValues {
                    private var title {
                        get {
                            self[Self.$title]
                        }
                    }

                    private static var $title: RemoteValue<String> {
                        RemoteValue("feed.headline", default: "News")
                    }
                    public var isNew: Bool {
                        get {
                            self[Self.$isNew]
                        }
                    }

                    public static var $isNew: RemoteValue<Bool> {
                        RemoteValue("feed.is_new", baselineKey: "feed.is_new_baseline", default: false)
                    }

                    public var isNewBaseline: Bool {
                        self[Self.$isNew.baseline]
                    }
                    static let other = 1
                    var both: String { title + "!" }

                    public let remoteValues: RemoteValues

                    public init(_ remoteValues: RemoteValues) {
                        self.remoteValues = remoteValues
                    }

                    public static var remoteKeys: [RemoteKey] {
                        ["feed.headline", "feed.is_new", "feed.is_new_baseline"]
                    }
                }

                extension FeedValues: RemoteValuesNamespace {
                }
                """)
    }

    @Test func namespaceWithoutAPrefixLeavesKeysAsTheyAre() {
        expectExpansion(
            of: """
                @RemoteValuesNamespace
                private struct FeedValues {
                    @StringRemoteValue var title = "News"
                }
                """,
            is: """
                private struct FeedValues {
                    var title {
                        get {
                            self[Self.$title]
                        }
                    }

                    static var $title: RemoteValue<String> {
                        RemoteValue("title", default: "News")
                    }

                    fileprivate let remoteValues: RemoteValues

                    fileprivate init(_ remoteValues: RemoteValues) {
                        self.remoteValues = remoteValues
                    }

                    fileprivate static var remoteKeys: [RemoteKey] {
                        ["title"]
                    }
                }

                extension FeedValues: RemoteValuesNamespace {
                }
                """)
    }
}
