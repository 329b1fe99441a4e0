// Shows the blocks in the editor as the server renders them; blocks.php registers them.
(() => {
  "use strict";

  const { blocks, element, serverSideRender, blockEditor, components } = window.wp;
  const make = element.createElement;

  for (const { name, title, description, icon, attributes, choices } of window.ltzdLoyaltyBlocks) {
    blocks.registerBlockType(name, {
      apiVersion: 2,
      title,
      description,
      icon,
      attributes,
      category: "widgets",
      save: () => null,
      edit: (props) =>
        make(
          "div",
          blockEditor.useBlockProps(),
          choices.length > 0 && make(blockEditor.InspectorControls, null, make(components.PanelBody, null, ...controls(choices, props))),
          make(serverSideRender, { block: name, attributes: props.attributes }),
        ),
    });
  }

  function controls(choices, { attributes, setAttributes }) {
    return choices.map(({ attribute, label, options, most }) => {
      const common = { key: attribute, label, value: attributes[attribute], onChange: (value) => setAttributes({ [attribute]: value }) };
      return options
        ? make(components.SelectControl, { ...common, options })
        : make(components.RangeControl, { ...common, min: 1, max: most });
    });
  }
})();
