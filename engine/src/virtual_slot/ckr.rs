//! The CKR_ numbers that the virtual slot answers with (PKCS#11 v3.1, 5.1).

macro_rules! codes {
    ($($name:ident = $number:literal;)*) => {
        $(
            #[doc = concat!("CKR_", stringify!($name))]
            pub const $name: u64 = $number;
        )*
    };
}

codes! {
    ATTRIBUTE_READ_ONLY = 0x10;
    ATTRIBUTE_TYPE_INVALID = 0x12;
    ATTRIBUTE_VALUE_INVALID = 0x13;
    ACTION_PROHIBITED = 0x1B;
    KEY_HANDLE_INVALID = 0x60;
    KEY_SIZE_RANGE = 0x62;
    KEY_TYPE_INCONSISTENT = 0x63;
    KEY_FUNCTION_NOT_PERMITTED = 0x68;
    KEY_NOT_WRAPPABLE = 0x69;
    KEY_UNEXTRACTABLE = 0x6A;
    MECHANISM_INVALID = 0x70;
    OBJECT_HANDLE_INVALID = 0x82;
    TEMPLATE_INCOMPLETE = 0xD0;
    TEMPLATE_INCONSISTENT = 0xD1;
    UNWRAPPING_KEY_HANDLE_INVALID = 0xF0;
    USER_NOT_LOGGED_IN = 0x101;
    WRAPPING_KEY_HANDLE_INVALID = 0x113;
    CURVE_NOT_SUPPORTED = 0x140;
    DATA_LEN_RANGE = 0x21;
    DEVICE_MEMORY = 0x31;
    FUNCTION_REJECTED = 0x200;
}
