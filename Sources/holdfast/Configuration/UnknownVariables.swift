import HoldfastCore

/// A variable of the environment that looks like a setting and is none.
struct UnknownVariable {
    let name: String
    /// The setting's variable that was probably meant; `nil` if none is like it.
    let nearest: String?
}

extension Settings {
    /// The variables that begin like those of settings, and stand for none that was asked for.
    ///
    /// - Parameter others: names of settings that somebody else asks for.
    func unknownVariables(besides others: [String]) -> [UnknownVariable] {
        let known = names.union(others).map(Self.variable)
        return environment.keys.filter { $0.hasPrefix(Self.prefix) && !known.contains($0) && !isOfKubernetes($0) }
            .sorted().map { UnknownVariable(name: $0, nearest: Spelling.nearest(to: $0, among: known.sorted())) }
    }

    /// Kubernetes tells each container of the services of its namespace, of which one may be called `holdfast`.
    private func isOfKubernetes(_ variable: String) -> Bool {
        guard environment["HOLDFAST_SERVICE_HOST"] != nil else { return false }
        return variable == "HOLDFAST_PORT" || variable.hasPrefix("HOLDFAST_PORT_") || variable.hasPrefix("HOLDFAST_SERVICE_")
    }
}
