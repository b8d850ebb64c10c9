import HoldfastClient
import HoldfastMacros

// A remote value of each kind. Only the other file of this module uses them.

@StringRemoteValue
enum PaywallType: String {
    case a, b
}

@BoolRemoteValue
enum StoriesEnabled {
    case enabled, disabled
}

@BaselineStringRemoteValue
struct OnboardingType {
    enum Variant: String {
        case short, long
    }
}

@BaselineBoolRemoteValue
struct SoundEnabled {}

@RemoteValuesNamespace
enum Values {
    enum CommentsEnabled {
        case enabled, disabled
    }
    struct VideoEnabled {}
}
