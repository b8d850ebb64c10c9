public import Definitions

/// The projects that a caller may use. ``ProjectView``, and for changes ``ProjectCatalog/Snapshot``, require it to
/// resolve a project, so no endpoint can forget the check.
public struct ProjectAccess: Sendable, Equatable {
    /// Every project, including future ones.
    public static let all = ProjectAccess(sdkKeys: nil)

    /// The SDK keys in ascending order; `nil` for all projects.
    public let sdkKeys: [String]?

    private init(sdkKeys: [String]?) {
        self.sdkKeys = sdkKeys
    }

    /// Creates an access to the projects of these SDK keys only.
    public init(only sdkKeys: some Sequence<String>) {
        self.sdkKeys = Set(sdkKeys).sorted()
    }

    public func allows(_ sdkKey: String) -> Bool { sdkKeys?.contains(sdkKey) ?? true }

    /// The only project that the caller may use, which replaces the default for requests that name no project; `nil` if
    /// there are none or several.
    var onlyProject: String? { sdkKeys?.count == 1 ? sdkKeys?.first : nil }

    /// - Throws: 403 with the name of the project, unless the caller may use it.
    public func check(_ sdkKey: String) throws(CoreError) {
        guard let sdkKeys, !sdkKeys.contains(sdkKey) else { return }
        let list = sdkKeys.joined(separator: ", ")
        throw CoreError(
            .forbidden, "the token is bound to the projects \(list); it may not use the project '\(sdkKey)'")
    }
}
