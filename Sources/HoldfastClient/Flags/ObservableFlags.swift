#if canImport(Combine)
    public import Combine

    /// Flags for views on systems without Observation. A view that has the object is updated when one of its flags
    /// changes: name the flags that the view reads.
    ///
    /// ```swift
    /// struct CheckoutView: View {
    ///     @StateObject private var flags = ObservableFlags(client: .shared, flagKeys: ["new-checkout"])
    ///     var body: some View {
    ///         if flags.boolVariation(flagKey: "new-checkout", defaultValue: false) { NewCheckout() } else { Checkout() }
    ///     }
    /// }
    /// ```
    public final class ObservableFlags: ObservedFlags, ObservableObject, @unchecked Sendable {
        // Safe: all properties are immutable, and the publisher is used on the main actor only.
        public let client: HoldfastClient?
        public let objectWillChange = ObservableObjectPublisher()
        private let registration = OwnedTokens()

        /// - Parameters:
        ///   - client: `nil` if the client could not start; all calls then return their defaults.
        ///   - flagKeys: the flags whose changes update views; `nil` for all flags.
        public init(client: HoldfastClient?, flagKeys: Set<String>? = nil) {
            self.client = client
            guard let client else { return }
            registration.add(
                client.observeFlags { [weak self] changed in
                    // Without keys, each change counts.
                    if let flagKeys, flagKeys.isDisjoint(with: changed) { return }
                    Task { @MainActor in self?.objectWillChange.send() }
                })
        }

        /// Does nothing: views are updated by the flags with which the object was created.
        public func willRead(_ flagKey: String) {}
    }
#endif
