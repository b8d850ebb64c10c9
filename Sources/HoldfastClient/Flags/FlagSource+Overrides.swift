/// Overrides of testers, and bootstrap values of the app, in the evaluations.
extension FlagSource {
    private static let overridesName = "overrides.cache"

    /// The values that a tester has chosen on this device, by flag.
    var overrides: [String: HoldfastValue] {
        loadedOverrides.withLock { loaded in
            if let loaded { return loaded }
            let stored = core.cache.read(Self.overridesName, as: [String: HoldfastValue].self) ?? [:]
            loaded = stored
            return stored
        }
    }

    /// Replaces the overrides, also on disk, and notifies listeners of the flags that change.
    func setOverrides(_ change: (inout [String: HoldfastValue]) -> Void) {
        update {
            var overrides = overrides
            change(&overrides)
            core.cache.write(Self.overridesName, overrides)
            loadedOverrides.withLock { $0 = overrides }
        }
    }

    /// Returns the evaluations of a user with the overrides of testers.
    ///
    /// - Parameters:
    ///   - content: the server's response; `nil` for the bootstrap values of the app.
    ///   - former: the previous evaluations, whose reported exposures are not reported again.
    /// - Returns: `nil` if there is neither a content, nor an override, nor a bootstrap value.
    func snapshot(
        _ content: Evaluations.Content?, of userID: String, after former: Evaluations? = nil
    ) -> Evaluations? {
        let overrides = overrides
        let bootstrap = core.configuration.bootstrap
        guard content != nil || !overrides.isEmpty || !bootstrap.isEmpty else { return nil }
        return Evaluations(
            content ?? Evaluations.Content(bootstrap, userID: userID), isFetched: content != nil, after: former,
            overrides: overrides, reports: core.configuration.reportsExposures, counts: counts)
    }
}

extension HoldfastClient {
    /// Overrides the value of a flag on this device, for testers and debug menus. The override stays until it is
    /// removed, also after restarts and changes of the user. Evaluations of the flag report no exposure and are not
    /// counted. ``EvaluationDetails/reason`` is ``VariationReason/localOverride``.
    ///
    /// - Parameter value: `nil` removes the override.
    public func setOverride(_ value: HoldfastValue?, flagKey: String) {
        flags.setOverrides { $0[flagKey] = value }
    }

    /// Removes the overrides of all flags on this device.
    public func removeOverrides() {
        flags.setOverrides { $0 = [:] }
    }

    /// All flags of the current user with their values and their overrides, by key, for a debug menu. Reports no
    /// exposure.
    public var flagStates: [FlagState] {
        guard let evaluations = flags.evaluations else { return [] }
        let fetched = Dictionary(
            evaluations.content.evaluations.map { (Key($0.flagKey), EvaluationDetails($0, of: evaluations.content)) }
        ) { _, last in last }
        return evaluations.all.map { details in
            FlagState(
                details: details, valueWithoutOverride: fetched[Key(details.flagKey)]?.variationValue,
                isOverridden: details.reason == .localOverride)
        }.sorted { $0.details.flagKey < $1.details.flagKey }
    }

    /// The values of all flags of the current user that have a value, by flag. An app can pass them to its widgets, and
    /// to a later run as ``HoldfastConfiguration/bootstrap``. Reports no exposure.
    public var flagValues: [String: HoldfastValue] {
        (flags.evaluations?.all ?? []).reduce(into: [:]) { $0[$1.flagKey] = $1.variationValue }
    }
}

/// A flag as a debug menu shows it; see ``HoldfastClient/flagStates``.
public struct FlagState: Sendable, Hashable {
    /// The current evaluation, including an override.
    public let details: EvaluationDetails
    /// The value without the override; `nil` if there is none.
    public let valueWithoutOverride: HoldfastValue?
    /// Whether ``HoldfastClient/setOverride(_:flagKey:)`` has given the value.
    public let isOverridden: Bool
}
