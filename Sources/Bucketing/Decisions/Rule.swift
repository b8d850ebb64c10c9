/// What a user was bucketed by.
enum Rule {
    case experiment(Experiment)
    case holdout(Holdout)

    var id: Identifier {
        switch self {
        case .experiment(let experiment): experiment.id
        case .holdout(let holdout): holdout.id
        }
    }

    var key: Identifier {
        switch self {
        case .experiment(let experiment): experiment.key
        case .holdout(let holdout): holdout.key
        }
    }

    /// Empty for a holdout, which belongs to no campaign.
    var layerID: Identifier {
        switch self {
        case .experiment(let experiment): experiment.layerID
        case .holdout: ""
        }
    }
}
