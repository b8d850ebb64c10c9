import HoldfastClient

enum Layout: String, RemoteValueType {
    case grid, list, stack
}

@RemoteValuesNamespace("feed")
struct FeedValues {
    @StringRemoteValue var title = "News"
    @BoolRemoteValue(enabledByDefault: false) var showsStories: Bool
    @BaselineStringRemoteValue var layout: Layout = .grid
    @BaselineBoolRemoteValue(enabledByDefault: true, key: "sound") var playsSound: Bool
}

extension RemoteValues {
    @StringRemoteValue var greeting = "Hello"
}
