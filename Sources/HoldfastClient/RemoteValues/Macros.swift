#if Macros
    /// Makes a property a remote value that is a string, or an enum of strings that is a ``RemoteValueType``.
    ///
    /// ```swift
    /// @RemoteValuesNamespace("feed")
    /// struct FeedValues {
    ///     @StringRemoteValue var title = "News"                      // "feed.title"
    ///     @StringRemoteValue(key: "order") var sorting: Sorting = .newest   // "feed.order"
    /// }
    /// ```
    ///
    /// The initial value is the default. The property becomes a computed one; beside it stands its description, here
    /// `FeedValues.$title`, a ``RemoteValue``.
    ///
    /// - Parameter key: the name where the value is kept; without it the property's name in snake case, `buttonTitle` as
    ///   `button_title`. A namespace's prefix and a dot come before either.
    @attached(accessor)
    @attached(peer, names: prefixed(`$`))
    public macro StringRemoteValue(key: StaticString? = nil) =
        #externalMacro(module: "HoldfastMacros", type: "StringRemoteValueMacro")

    /// Makes a property a remote value that is a Boolean.
    ///
    /// ```swift
    /// extension RemoteValues {
    ///     @BoolRemoteValue(enabledByDefault: false) var showsStories: Bool   // "shows_stories"
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - enabledByDefault: the default.
    ///   - key: as for ``StringRemoteValue(key:)``.
    @attached(accessor)
    @attached(peer, names: prefixed(`$`))
    public macro BoolRemoteValue(enabledByDefault: Bool, key: StaticString? = nil) =
        #externalMacro(module: "HoldfastMacros", type: "BoolRemoteValueMacro")

    /// Makes a property a string under test with a baseline for everybody else; see ``RemoteValue``.
    ///
    /// ```swift
    /// extension RemoteValues {
    ///     @BaselineStringRemoteValue var layout = "grid"
    /// }
    /// ```
    ///
    /// reads `layout`, else `layout_baseline`, else the default. `layoutBaseline` is the value of those outside the
    /// experiment, so that the two can be seen side by side.
    ///
    /// - Parameter key: as for ``StringRemoteValue(key:)``, without the suffix `_baseline`.
    @attached(accessor)
    @attached(peer, names: prefixed(`$`), suffixed(Baseline))
    public macro BaselineStringRemoteValue(key: StaticString? = nil) =
        #externalMacro(module: "HoldfastMacros", type: "BaselineStringRemoteValueMacro")

    /// Makes a property a Boolean under test with a baseline for everybody else, as
    /// ``BaselineStringRemoteValue(key:)`` does for a string.
    ///
    /// ```swift
    /// extension RemoteValues {
    ///     @BaselineBoolRemoteValue(enabledByDefault: true) var playsSound: Bool
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - enabledByDefault: the default.
    ///   - key: as for ``StringRemoteValue(key:)``, without the suffix `_baseline`.
    @attached(accessor)
    @attached(peer, names: prefixed(`$`), suffixed(Baseline))
    public macro BaselineBoolRemoteValue(enabledByDefault: Bool, key: StaticString? = nil) =
        #externalMacro(module: "HoldfastMacros", type: "BaselineBoolRemoteValueMacro")

    /// Makes a struct a namespace of remote values, to be read together with
    /// ``RemoteValueService/getValues(for:)-(Namespace.Type)``.
    ///
    /// ```swift
    /// @RemoteValuesNamespace("checkout")
    /// struct CheckoutValues {
    ///     @StringRemoteValue var buttonTitle = "Buy"
    ///     @BoolRemoteValue(enabledByDefault: false) var showsCoupons: Bool
    /// }
    /// ```
    ///
    /// Adds `remoteKeys`, `remoteValues` and `init(_:)`. Stored properties have to be remote values.
    ///
    /// - Parameter prefix: what each key begins with, before a dot; without it keys have no prefix.
    @attached(member, names: named(remoteValues), named(remoteKeys), named(init(_:)))
    @attached(extension, conformances: RemoteValuesNamespace)
    public macro RemoteValuesNamespace(_ prefix: StaticString? = nil) =
        #externalMacro(module: "HoldfastMacros", type: "RemoteValuesNamespaceMacro")
#endif
