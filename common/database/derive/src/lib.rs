//! The fields of a struct say how a row is read into it, so that nothing has to list them again.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Data, DataStruct, DeriveInput, Error, Field, Fields, Ident, Path, Result, parse_macro_input,
};

/// Derives `letterbox_database::FromRow`: each field is read from the column of its name, unless it
/// says otherwise:
///
/// | attribute | the field is |
/// |---|---|
/// | `#[row(name = column)]` | the column of another name |
/// | `#[row(with = path)]` | what a function makes of the column |
/// | `#[row(flatten)]` | a struct that is read from the same row |
/// | `#[row(from = path)]` | what a function reads from the row |
/// | `#[row(default)]` | in no column |
#[proc_macro_derive(FromRow, attributes(row))]
pub fn from_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let implemented = implement(&parse_macro_input!(input as DeriveInput));
    implemented.unwrap_or_else(Error::into_compile_error).into()
}

fn implement(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(DataStruct {
        fields: Fields::Named(fields),
        ..
    }) = &input.data
    else {
        return Err(Error::new_spanned(
            input,
            "fields need names: those of the columns",
        ));
    };
    let fields = fields.named.iter().map(read).collect::<Result<Vec<_>>>()?;
    let (name, (generics, arguments, bounds)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        impl #generics ::letterbox_database::FromRow for #name #arguments #bounds {
            fn from_row(
                row: &::letterbox_database::Row,
            ) -> Result<Self, ::letterbox_database::RowError> {
                Ok(Self { #(#fields),* })
            }
        }
    })
}

/// A field with the expression that reads it.
fn read(field: &Field) -> Result<TokenStream> {
    let name = &field.ident;
    let mut read = quote!(row.try_get(stringify!(#name))?);
    for attribute in field.attrs.iter().filter(|one| one.path().is_ident("row")) {
        attribute.parse_nested_meta(|meta| {
            let path = || meta.value()?.parse::<Path>();
            read = match meta.path.get_ident().map(ToString::to_string).as_deref() {
                Some("name") => {
                    let column: Ident = meta.value()?.parse()?;
                    quote!(row.try_get(stringify!(#column))?)
                }
                Some("with") => {
                    let path = path()?;
                    quote!(#path(#read))
                }
                Some("from") => {
                    let path = path()?;
                    quote!(#path(row)?)
                }
                Some("flatten") => quote!(::letterbox_database::FromRow::from_row(row)?),
                Some("default") => quote!(Default::default()),
                _ => {
                    let known = "`name`, `with`, `flatten`, `from` or `default` is expected";
                    return Err(meta.error(known));
                }
            };
            Ok(())
        })?;
    }
    Ok(quote!(#name: #read))
}
